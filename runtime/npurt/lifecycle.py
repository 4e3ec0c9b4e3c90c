"""The life of a tensor's host memory: who owns it in each state, and which steps lead on.

One table holds every legal step; whatever is not in it raises LifecycleError. The diagram of
docs/runtime.md is drawn from the same table.

Invariant: at every moment exactly one owner may touch the bytes; a step is taken by one thread.
"""

from __future__ import annotations

import threading
from enum import StrEnum
from typing import NamedTuple

from npurt.errors import LifecycleError

__all__ = ["OWNERS", "TRANSITIONS", "Lifecycle", "Owner", "State", "Step", "Transition"]


class Owner(StrEnum):
    """Who may touch a tensor's bytes."""

    APPLICATION = "application"
    RUNTIME = "runtime"
    FIRMWARE = "firmware"


class State(StrEnum):
    """Where a tensor is."""

    HOST_OWNED = "host-owned"
    MAPPED = "mapped"
    QUEUED = "queued"
    IN_USE = "in use"
    DONE = "done"
    RELEASED = "released"


class Step(StrEnum):
    """What may be asked of a tensor."""

    MAP = "map"
    UNMAP = "unmap"
    SUBMIT = "submit"
    WITHDRAW = "withdraw"
    START = "start"
    REQUEUE = "requeue"
    FINISH = "finish"
    ACCEPT = "accept"
    RELEASE = "release"
    RECLAIM = "reclaim"


OWNERS: dict[State, Owner] = {
    State.HOST_OWNED: Owner.APPLICATION,
    State.MAPPED: Owner.APPLICATION,
    State.QUEUED: Owner.RUNTIME,
    State.IN_USE: Owner.FIRMWARE,
    State.DONE: Owner.RUNTIME,
    State.RELEASED: Owner.RUNTIME,
}
"""Who owns a tensor in each state."""


class Transition(NamedTuple):
    """A legal step: from a state, by someone, to a state, and what it is for."""

    source: State
    step: Step
    by: Owner
    target: State
    meaning: str


def _row(source: State, step: Step, by: Owner, target: State, meaning: str) -> Transition:
    return Transition(source, step, by, target, meaning)


_APPLICATION, _RUNTIME, _FIRMWARE = Owner
_HOST, _MAPPED, _QUEUED, _IN_USE, _DONE, _RELEASED = State

TRANSITIONS: tuple[Transition, ...] = (
    _row(_HOST, Step.MAP, _APPLICATION, _MAPPED, "read or write its elements"),
    _row(_MAPPED, Step.UNMAP, _APPLICATION, _HOST, "the elements are complete"),
    _row(_HOST, Step.SUBMIT, _APPLICATION, _QUEUED, "it is the input of a job"),
    _row(_QUEUED, Step.WITHDRAW, _RUNTIME, _HOST, "the job ended without having run"),
    _row(_QUEUED, Step.START, _FIRMWARE, _IN_USE, "a core runs the job"),
    _row(_IN_USE, Step.REQUEUE, _RUNTIME, _QUEUED, "the core was taken out: another will run it"),
    _row(_IN_USE, Step.FINISH, _FIRMWARE, _DONE, "the job has run; its fence is signalled"),
    _row(_DONE, Step.ACCEPT, _APPLICATION, _HOST, "the fence was waited for"),
    _row(_HOST, Step.RELEASE, _APPLICATION, _RELEASED, "its memory goes back to the pool"),
    _row(_DONE, Step.RELEASE, _APPLICATION, _RELEASED, "the same, without another look at it"),
    _row(_QUEUED, Step.RECLAIM, _RUNTIME, _RELEASED, "the job got no place to write to"),
    _row(_HOST, Step.RECLAIM, _RUNTIME, _RELEASED, "it was dropped without a release: a leak"),
    _row(_DONE, Step.RECLAIM, _RUNTIME, _RELEASED, "the job failed, or nobody will ask for it"),
)
"""Every legal step. Inputs begin host-owned, outputs queued."""

_NEXT = {(row.source, row.step, row.by): row.target for row in TRANSITIONS}


class Lifecycle:
    """The state of one tensor; *what* names it in errors."""

    __slots__ = ("_lock", "_state", "_what")

    def __init__(self, what: str, state: State = State.HOST_OWNED) -> None:
        self._what = what
        self._state = state
        self._lock = threading.Lock()

    @property
    def state(self) -> State:
        """Where the tensor is."""
        return self._state

    @property
    def owner(self) -> Owner:
        """Who may touch the tensor."""
        return OWNERS[self._state]

    def take(self, step: Step, by: Owner) -> None:
        """Take *step*. Raises LifecycleError, which names owner and state, and changes nothing."""
        with self._lock:
            target = _NEXT.get((self._state, step, by))
            if target is None:
                raise self.refusal(step, by)
            self._state = target

    def take_from(self, source: State, step: Step, by: Owner) -> bool:
        """Take *step* when the state is *source*; return whether it was."""
        with self._lock:
            if self._state is not source:
                return False
            self._state = _NEXT[source, step, by]
            return True

    def refusal(self, step: Step, by: Owner) -> LifecycleError:
        """Return the error of *step* by *by* in this state."""
        legal = [f"{row.step} ({row.by})" for row in TRANSITIONS if row.source is self._state]
        text = f"{self._what} is {self._state} and belongs to the {self.owner}"
        after = f"from here: {', '.join(legal)}" if legal else "nothing follows"
        return LifecycleError(f"{text}: the {by} may not {step} it; {after}")
