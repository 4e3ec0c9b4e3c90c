"""The models of a service: each loaded once, however many threads ask, and swapped without a loss.

Invariant: a job keeps the version that it was submitted to; a version that no job needs and that
no name leads to holds nothing, neither on the device nor on the host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from npuabi.errors import ErrorCode
from npuabi.sections import MAX_BLOB_BYTES
from npuabi.target import Target
from npufw.boot import Image, Port, boot
from npufw.errors import FirmwareError
from npurt.contexts import Contexts, Version

__all__ = ["Blob", "Model", "Models", "read"]

Blob = bytes | str | Path
"""A blob's bytes, or the path of its file."""


@dataclass(eq=False, slots=True)
class Model:
    """A name for the jobs' model: what it stands for may be swapped."""

    name: str
    blob: Blob
    loading: Future[Version] | None = None

    def __repr__(self) -> str:
        return f"Model({self.name!r})"


@dataclass(slots=True)
class Models:
    """The models by name or by blob."""

    target: Target
    contexts: Contexts
    boots: int = 0
    """How often a blob was read and checked."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _models: dict[Blob, Model] = field(default_factory=dict)

    def named(self, model: Model | Blob) -> Model:
        """Return the model of that name, path or blob, known from now on."""
        if isinstance(model, Model):
            return model
        with self._lock:
            found = self._models.get(model)
            if found is None:
                found = self._models[model] = Model(_name(model), model)
            return found

    def add(self, blob: Blob, name: str) -> Model:
        """Give *blob* a name. Raises ValueError for a name that is taken by another blob."""
        with self._lock:
            found = self._models.get(name)
            if found is None:
                found = self._models[name] = Model(name, blob)
        if found.blob != blob:
            raise ValueError(f"model {name!r} is there with another blob: use swap")
        return found

    def acquire(self, model: Model) -> Version:
        """Return the version of *model* for one more job, loaded by the first who asks.

        Raises AbiError and OSError as loading does, to all who wait for it; a later call loads
        again.
        """
        while True:
            with self._lock:
                loading = model.loading
                mine = loading is None
                if loading is None:
                    loading = model.loading = Future()
            if mine:
                self._load(model, loading)
            version = loading.result()
            with self._lock:
                if not version.retired:
                    version.jobs += 1
                    return version

    def release(self, version: Version) -> None:
        """A job of *version* has ended."""
        with self._lock:
            version.jobs -= 1
            gone = version.retired and not version.jobs
        if gone:
            self.contexts.drop(version)

    def swap(self, model: Model, blob: Blob) -> None:
        """Let *model* stand for *blob*: later jobs run on it, earlier ones on the old one.

        Raises AbiError; FirmwareError when inputs or outputs differ; the model is then as before.
        """
        new = self._booted(model.name, blob)
        old = self.acquire(model)
        try:
            _check_alike(old.image, new.image, model.name)
            ready: Future[Version] = Future()
            ready.set_result(new)
            with self._lock:
                replaced = model.loading
                model.blob, model.loading = blob, ready
            self._retire(replaced)
        finally:
            self.release(old)

    def unload(self, model: Model) -> None:
        """Forget *model*: what it holds goes when its jobs have ended; a later job loads again."""
        with self._lock:
            replaced, model.loading = model.loading, None
            for key in [key for key, known in self._models.items() if known is model]:
                del self._models[key]
        self._retire(replaced)

    def clear(self) -> None:
        """Forget all models."""
        with self._lock:
            models = list(self._models.values())
        for model in models:
            self.unload(model)

    def _load(self, model: Model, loading: Future[Version]) -> None:
        try:
            loading.set_result(self._booted(model.name, model.blob))
        except BaseException as error:
            with self._lock:
                if model.loading is loading:
                    model.loading = None
                if self._models.get(model.blob) is model:
                    del self._models[model.blob]
            loading.set_exception(error)

    def _sweep(self) -> None:
        """Forget the images of models that were moved out of the device and have no jobs."""
        with self._lock:
            for model in self._models.values():
                loading = model.loading
                if loading is None or not loading.done() or loading.exception() is not None:
                    continue
                version = loading.result()
                if version.evicted and not version.jobs:
                    version.retired, model.loading = True, None

    def _booted(self, name: str, blob: Blob) -> Version:
        self._sweep()
        image = boot(read(blob), self.target)
        # Computed here, by one thread, and not by the first job.
        _ = image.timeline
        with self._lock:
            self.boots += 1
        return Version(name, image)

    def _retire(self, loading: Future[Version] | None) -> None:
        if loading is None or loading.exception() is not None:
            return
        version = loading.result()
        with self._lock:
            version.retired = True
            gone = not version.jobs
        if gone:
            self.contexts.drop(version)


def read(blob: Blob) -> bytes:
    """Return the bytes of *blob*. Raises OSError; AbiError for a file longer than any blob."""
    if isinstance(blob, bytes):
        return blob
    with Path(blob).open("rb") as stream:
        return stream.read(MAX_BLOB_BYTES + 1)


def _name(blob: Blob) -> str:
    return f"blob of {len(blob)} bytes" if isinstance(blob, bytes) else str(blob)


def _check_alike(old: Image, new: Image, name: str) -> None:
    """Raise FirmwareError unless both take and give the same arrays."""
    sides: tuple[tuple[str, Callable[[Image], tuple[Port, ...]]], ...] = (
        ("inputs", lambda image: image.inputs),
        ("outputs", lambda image: image.outputs),
    )
    for side, ports in sides:
        before, after = _signature(ports(old)), _signature(ports(new))
        if before != after:
            text = f"swap of {name}: the {side} are {', '.join(before)}, of the new {after}"
            raise FirmwareError(ErrorCode.INPUT_SHAPE, text, remedy="load it under another name")


def _signature(ports: tuple[Port, ...]) -> list[str]:
    return [
        f"{port.name} {'x'.join(map(str, port.shape))} {port.entry.dtype.text}" for port in ports
    ]
