"""The host runtime of the NPU: sessions, a service over all cores, and both under load."""

from __future__ import annotations

from npuabi import __version__
from npurt.buffers import Leak
from npurt.errors import (
    DeadlineMissed,
    DeviceMemoryFull,
    JobFailed,
    LifecycleError,
    NoHealthyCore,
    NpurtError,
    QueueFull,
    ServiceClosed,
    UnreleasedOutputs,
)
from npurt.futures import JobFuture
from npurt.models import Model
from npurt.service import Service
from npurt.session import Session
from npurt.tensors import HostTensor, Outputs
from npurt.workers import Incident

__all__ = [
    "DeadlineMissed",
    "DeviceMemoryFull",
    "HostTensor",
    "Incident",
    "JobFailed",
    "JobFuture",
    "Leak",
    "LifecycleError",
    "Model",
    "NoHealthyCore",
    "NpurtError",
    "Outputs",
    "QueueFull",
    "Service",
    "ServiceClosed",
    "Session",
    "UnreleasedOutputs",
    "__version__",
]
