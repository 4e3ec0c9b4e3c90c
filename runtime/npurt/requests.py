"""A job as the service sees it: what it runs, on what, and who is told.

Invariant: of several attempts at a job only the last may end it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from npuabi.target import Target
from npufw.boot import Port
from npufw.host import batches, runs_of
from npurt.buffers import BufferPool
from npurt.contexts import Version
from npurt.futures import JobFuture
from npurt.lifecycle import Owner, Step
from npurt.tensors import HostTensor, lent_tensor

__all__ = ["Given", "Request", "arrays_of", "bound"]

Given = Mapping[str, "NDArray[Any] | HostTensor"]

_PLAIN = "a plain array stays the application's, which may change it while the job waits"


@dataclass(eq=False, slots=True)
class Request:
    """The payload of a policy's job.

    ``tensors`` are its inputs in the order of the model's, ``copies`` those of them that the
    runtime made itself. ``attempt`` counts the attempts that were decided on, ``faults`` those that
    raised.
    """

    version: Version
    future: JobFuture
    place: str
    runs: int
    tensors: Sequence[HostTensor]
    copies: Sequence[HostTensor]
    attempt: int = 0
    faults: int = 0

    def given(self) -> list[NDArray[Any]]:
        """Return the inputs as the engine takes them."""
        ports = self.version.image.inputs
        return [
            batches(port, tensor.array, self.runs)
            for port, tensor in zip(ports, self.tensors, strict=True)
        ]

    def submit(self) -> None:
        """Hand the inputs over, all or none. Raises LifecycleError."""
        taken: list[HostTensor] = []
        try:
            for tensor in self.tensors:
                tensor.submit(self.future)
                taken.append(tensor)
        except BaseException:
            for tensor in taken:
                tensor.advance(Step.WITHDRAW, Owner.RUNTIME)
            raise

    def withdraw(self) -> None:
        """Give the inputs, which are queued, back to who submitted them."""
        self.advance(Step.WITHDRAW, Owner.RUNTIME)

    def advance(self, step: Step, by: Owner) -> None:
        """Take a step with every input."""
        for tensor in self.tensors:
            tensor.advance(step, by)

    def requeue(self) -> None:
        """Have the inputs wait for another attempt."""
        for tensor in self.tensors:
            tensor.requeue()

    def let_go(self) -> None:
        """Give the copies' memory back, once the inputs are no longer with a job."""
        for tensor in self.copies:
            tensor.reclaim()
        self.copies = ()


def arrays_of(ports: Sequence[Port], inputs: Given) -> tuple[dict[str, NDArray[Any]], int]:
    """Return the arrays of *inputs* and the runs that they ask for.

    Raises FirmwareError, which says what was expected and what was given.
    """
    arrays = {
        name: value.array if isinstance(value, HostTensor) else value
        for name, value in inputs.items()
    }
    return arrays, runs_of(ports, arrays)


def bound(
    ports: Sequence[Port], inputs: Given, runs: int, pool: BufferPool, target: Target
) -> tuple[list[HostTensor], list[HostTensor], dict[str, str]]:
    """Return the tensors that a job reads, those of them that are copies, and why they are.

    Raises MemoryError.
    """
    tensors: list[HostTensor] = []
    copies: list[HostTensor] = []
    reasons: dict[str, str] = {}
    try:
        for port in ports:
            value = inputs[port.name]
            if isinstance(value, HostTensor) and not value.copied:
                tensors.append(value)
                continue
            made = lent_tensor(pool, port, runs, target.row_pitch)
            copies.append(made)
            tensors.append(made)
            source, reasons[port.name] = _source(value)
            with made.map() as array:
                array[...] = source
    except BaseException:
        for copy in copies:
            copy.reclaim()
        raise
    return tensors, copies, reasons


def _source(value: NDArray[Any] | HostTensor) -> tuple[NDArray[Any], str]:
    """Return what to copy, and why."""
    return (value.array, value.copied) if isinstance(value, HostTensor) else (value, _PLAIN)
