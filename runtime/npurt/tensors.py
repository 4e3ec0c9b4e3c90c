"""What applications hold: host tensors to give to jobs, and the outputs that jobs give back.

Invariant: an array that the device may be reading is read-only; each step of a tensor goes through
the table of lifecycle.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Layout
from npuabi.geometry import dense_strides, device_axes
from npufw.boot import Port
from npurt.buffers import ALIGNMENT, Block, BufferPool
from npurt.lifecycle import Lifecycle, Owner, State, Step

__all__ = ["HostTensor", "Outputs", "lent_tensor", "why_copied"]

_GONE: NDArray[Any] = np.empty(0, np.uint8)


class HostTensor:
    """An input in memory that the device reaches, or in the application's own array.

    ``with tensor.map() as array:`` gives its elements; ``wait()`` waits for the fence of the job
    that it was given to. ``copied`` says why a job has to copy it, "" when none has to.
    """

    def __init__(
        self,
        name: str,
        array: NDArray[Any],
        *,
        copied: str = "",
        lease: tuple[BufferPool, Block] | None = None,
    ) -> None:
        self.name = name
        self.copied = copied
        self._array = array
        self._lease = lease
        self._life = Lifecycle(f"tensor {name!r}")
        self._fence: Future[Any] | None = None
        self._writable = array.flags.writeable

    @property
    def state(self) -> State:
        """Where the tensor is."""
        return self._life.state

    @property
    def owner(self) -> Owner:
        """Who may touch it."""
        return self._life.owner

    @property
    def array(self) -> NDArray[Any]:
        """Its elements in the model's shape, to look at: for writing there is ``map``."""
        looked = self._array.view()
        looked.flags.writeable = False
        return looked

    @contextmanager
    def map(self) -> Iterator[NDArray[Any]]:
        """Give its elements, in the model's shape, to the application. Raises LifecycleError."""
        self._life.take(Step.MAP, Owner.APPLICATION)
        try:
            yield self._array
        finally:
            self._life.take(Step.UNMAP, Owner.APPLICATION)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the job that has the tensor, and take it back. Raises TimeoutError."""
        if self._fence is not None:
            with suppress(CancelledError):
                self._fence.exception(timeout)
        if self._life.take_from(State.DONE, Step.ACCEPT, Owner.APPLICATION):
            self._array.flags.writeable = self._writable

    def release(self) -> None:
        """Give its memory back for good. Raises LifecycleError while a job has it."""
        self._life.take(Step.RELEASE, Owner.APPLICATION)
        self._let_go()

    def submit(self, fence: Future[Any]) -> None:
        """Hand it to the job of *fence*: its elements are read-only from now on."""
        self._life.take(Step.SUBMIT, Owner.APPLICATION)
        self._fence = fence
        self._array.flags.writeable = False

    def advance(self, step: Step, by: Owner) -> None:
        """Take a step of the runtime or the firmware."""
        self._life.take(step, by)
        if step is Step.WITHDRAW:
            self._array.flags.writeable = self._writable

    def requeue(self) -> None:
        """Wait for another core, if one has begun with it."""
        self._life.take_from(State.IN_USE, Step.REQUEUE, Owner.RUNTIME)

    def reclaim(self) -> None:
        """Take the memory of a copy that the runtime made back."""
        self._life.take(Step.RECLAIM, Owner.RUNTIME)
        self._let_go()

    def _let_go(self) -> None:
        self._array = _GONE
        if self._lease is not None:
            pool, block = self._lease
            pool.take_back([block])

    def __del__(self) -> None:
        if self._lease is None:
            return
        for state in (State.DONE, State.HOST_OWNED):
            if self._life.take_from(state, Step.RECLAIM, Owner.RUNTIME):
                pool, block = self._lease
                self._array = _GONE
                pool.drop([block])


def lent_tensor(pool: BufferPool, port: Port, runs: int, row_pitch: int) -> HostTensor:
    """Return a tensor of zeros for *runs* batches of *port* in a block of *pool*, as the device's.

    What another job left in the block is nobody's business. Raises MemoryError.
    """
    strides = _strides(port, runs, row_pitch)
    shape = port.shape_of(runs)
    reach = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    block = pool.lend(reach + port.tensor.dtype.size)
    array = block.array(shape, port.tensor.dtype.numpy, strides)
    array[...] = 0
    return HostTensor(port.name, array, lease=(pool, block))


def why_copied(port: Port, array: NDArray[Any], runs: int, row_pitch: int) -> str:
    """Return why the device cannot read *array* where it lies; "" when it can."""
    place = array.ctypes.data
    if place % ALIGNMENT:
        return f"its address 0x{place:x} is no multiple of {ALIGNMENT}"
    wanted = _strides(port, runs, row_pitch)
    rows = zip(array.shape, array.strides, wanted, strict=True)
    if any(n > 1 and stride != want for n, stride, want in rows):
        return f"its strides are {array.strides}, rows of pitch {row_pitch} give {wanted}"
    return ""


def _strides(port: Port, runs: int, row_pitch: int) -> tuple[int, ...]:
    """Return the device's strides of the model's shape."""
    tensor, rank = port.tensor, len(port.shape_of(runs))
    if rank < 2:
        # The runs of a vector lie behind each other, whatever the pitch.
        return (tensor.dtype.size,) * rank
    return _model_strides(tensor.dims, tensor.dtype, tensor.layout, rank, row_pitch)


@lru_cache(maxsize=1024)
def _model_strides(
    dims: tuple[int, ...], dtype: DType, layout: Layout, rank: int, row_pitch: int
) -> tuple[int, ...]:
    strides = dense_strides(dims, dtype, layout, row_pitch=row_pitch)
    return tuple(strides[axis] for axis in device_axes(rank))


class Outputs(Mapping[str, NDArray[Any]]):
    """A job's outputs by name, in memory of the pool until they are released.

    Use it in ``with``, or call ``release()``; ``copy()`` gives arrays that are the application's.
    """

    def __init__(
        self,
        job: int,
        arrays: dict[str, NDArray[Any]],
        blocks: Sequence[Block],
        give_back: Callable[[int, Sequence[Block], bool], None],
    ) -> None:
        self.job = job
        self.size = sum(block.size for block in blocks)
        self._blocks = blocks
        self._arrays = arrays
        self._give_back = give_back
        self._life = Lifecycle(f"outputs of job {job}", State.QUEUED)

    @property
    def state(self) -> State:
        """Where the outputs are."""
        return self._life.state

    def __getitem__(self, name: str) -> NDArray[Any]:
        self._life.take_from(State.DONE, Step.ACCEPT, Owner.APPLICATION)
        if self.state is not State.HOST_OWNED:
            raise self._life.refusal(Step.MAP, Owner.APPLICATION)
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, *_: object) -> None:
        if self.state is not State.RELEASED:
            self.release()

    def copy(self) -> dict[str, NDArray[Any]]:
        """Return the outputs as arrays of the application's own."""
        return {name: self[name].copy() for name in self}

    def release(self) -> None:
        """Give the memory back. Raises LifecycleError for a second time."""
        self._life.take(Step.RELEASE, Owner.APPLICATION)
        self._let_go(released=True)

    def advance(self, step: Step, by: Owner) -> None:
        """Take a step of the runtime or the firmware."""
        self._life.take(step, by)

    def abandon(self) -> None:
        """Take the memory of a job that gives no result back, wherever it was."""
        self._life.take_from(State.IN_USE, Step.FINISH, Owner.FIRMWARE)
        self._life.take(Step.RECLAIM, Owner.RUNTIME)
        self._let_go(released=True)

    def __del__(self) -> None:
        for state in (State.DONE, State.HOST_OWNED):
            if self._life.take_from(state, Step.RECLAIM, Owner.RUNTIME):
                self._let_go(released=False)

    def _let_go(self, *, released: bool) -> None:
        self._arrays = dict.fromkeys(self._arrays, _GONE)
        self._give_back(self.job, self._blocks, released)
