"""A job's future: what concurrent.futures promises, with callbacks off the device threads.

Invariant: the future completes once, before any of its callbacks runs; the thread that completes it
runs none of them.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from npurt.policy import Job

if TYPE_CHECKING:
    from npurt.tensors import Outputs

__all__ = ["Dispatcher", "JobFuture"]

_LOG = logging.getLogger("npurt")

_Call = tuple[Callable[[Any], object], Any]


class JobFuture(Future["Outputs"]):
    """The outputs of a job to be; also awaitable.

    ``user_data`` is what submit was given, ``job`` the job's number, and ``copied`` says of each
    input that was copied why.
    """

    def __init__(
        self,
        job: Job,
        user_data: Any,
        copied: Mapping[str, str],
        withdraw: Callable[[Job], bool],
        dispatcher: Dispatcher,
    ) -> None:
        super().__init__()
        self._job = job
        self.user_data = user_data
        self.copied = copied
        self._withdraw = withdraw
        self._dispatcher = dispatcher

    def cancel(self) -> bool:
        """Cancel the job if it still waits; return whether it is cancelled."""
        return self._withdraw(self._job) or self.cancelled()

    @property
    def job(self) -> int:
        """The job's number."""
        return self._job.number

    def cancelled_now(self) -> None:
        """Complete as cancelled, and wake all who wait."""
        super().cancel()
        self.set_running_or_notify_cancel()

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Have *fn* called with the future when it is done, in the service's callback thread."""
        super().add_done_callback(lambda future: self._dispatcher.post(fn, future))

    def __await__(self) -> Generator[Any, None, Outputs]:
        """Wait in a running event loop."""
        return asyncio.wrap_future(self).__await__()


class Dispatcher:
    """The thread that runs callbacks, in the order of completion."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.failures = 0
        """Callbacks that raised."""
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is a callback."""
        return threading.current_thread() is self._thread

    def post(self, fn: Callable[[Any], object], argument: Any) -> None:
        """Have *fn* called; after the end it is called at once, by whoever asked."""
        with self._lock:
            if not self._stopped:
                self._calls.put((fn, argument))
                return
        self._call(fn, argument)

    def stop(self) -> None:
        """Run what was posted, and end; in a callback, what is left is run before this returns."""
        with self._lock:
            self._stopped = True
        if not self.is_current:
            self._calls.put(None)
            self._thread.join()
            return
        while not self._calls.empty():
            self._turn()

    def _work(self) -> None:
        while self._turn():
            pass

    def _turn(self) -> bool:
        """Run what comes next; False at the end. A thread that waits holds no future."""
        call = self._calls.get()
        if call is not None:
            self._call(*call)
        return not (self._stopped and self._calls.empty())

    def _call(self, fn: Callable[[Any], object], argument: Any) -> None:
        # A callback is the application's code: whatever it raises, even an exit, ends nothing here.
        try:
            fn(argument)
        except BaseException:
            self.failures += 1
            _LOG.exception("callback %r failed", fn)
