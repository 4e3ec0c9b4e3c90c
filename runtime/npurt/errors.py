"""What the runtime refuses, as exceptions.

    NpurtError
     ├─ DeadlineMissed      a job did not start before its deadline
     ├─ DeviceMemoryFull    an arena or a model does not fit the device's budget
     ├─ JobFailed           the device gave no result; the cause is the exception's
     ├─ LifecycleError      a tensor was asked for a step that its state does not allow
     ├─ NoHealthyCore       every core was taken out
     ├─ QueueFull           as many jobs wait as the service takes
     ├─ ScenarioError       a scenario file that cannot be used
     └─ ServiceClosed       the service takes no more jobs

    UnreleasedOutputs        a warning: outputs of a job that nobody released

Inputs that do not fit a model raise npufw's FirmwareError, whose text names what was expected and
what was given. A cancelled job's future raises concurrent.futures.CancelledError.
"""

from __future__ import annotations

__all__ = [
    "DeadlineMissed",
    "DeviceMemoryFull",
    "JobFailed",
    "LifecycleError",
    "NoHealthyCore",
    "NpurtError",
    "QueueFull",
    "ScenarioError",
    "ServiceClosed",
    "UnreleasedOutputs",
]


class NpurtError(Exception):
    """Whatever the runtime refuses."""


class DeadlineMissed(NpurtError):
    """A job did not start before its deadline."""


class DeviceMemoryFull(NpurtError):
    """An arena or a model does not fit the device's budget."""


class JobFailed(NpurtError):
    """The device gave no result."""


class LifecycleError(NpurtError):
    """A tensor was asked for a step that its state does not allow."""


class NoHealthyCore(NpurtError):
    """Every core was taken out."""


class QueueFull(NpurtError):
    """As many jobs wait as the service takes."""


class ScenarioError(NpurtError):
    """A scenario file that cannot be used."""


class ServiceClosed(NpurtError):
    """The service takes no more jobs."""


class UnreleasedOutputs(RuntimeWarning):
    """Outputs of a job that nobody released; the text names the line that asked for them."""
