"""What every command line of the toolchain shares: how a refusal ends a program.

Invariant: exit 0 is done, 1 is refused or failed with one message on standard error and no
traceback, 2 is wrong usage.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import IO, Any, ClassVar, NoReturn

import click

from npuabi.diagnostics import SourceError
from npuabi.errors import AbiError
from npuabi.target import TargetError
from npuabi.text import visible

__all__ = ["CommandGroup", "RealFile", "Refusal"]


class Refusal(click.ClickException):
    """A message for the user that ends the program with exit code 1."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message alone."""
        click.echo(visible(self.format_message()), file=file, err=file is None)


class RealFile(click.Path):
    """A file that is read and written again: the standard streams, ``-``, are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse ``-``; see click."""
        if value == "-":
            self.fail("a file is needed, - is none", param, ctx)
        return super().convert(value, param, ctx)


class CommandGroup(click.Group):
    """A group whose commands raise the toolchain's errors, ``ERRORS``, for bad input."""

    ERRORS: ClassVar[tuple[type[Exception], ...]] = (AbiError, SourceError, TargetError)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; see click."""
        _end_in_order()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            # Help is printed before there is a command to invoke.
            Refusal(_reason(error)).show()
            sys.exit(Refusal.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn what it raises for bad input into a refusal."""
        try:
            return super().invoke(ctx)
        except self.ERRORS as error:
            raise Refusal(_prefixed(str(error))) from error
        except BrokenPipeError:
            raise  # the reader has gone: click ends quietly
        except OSError as error:
            raise Refusal(_reason(error)) from error
        except MemoryError as error:
            raise Refusal("error: the host is out of memory") from error


def _reason(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename is not None else ""
    return f"error: {name}{error.strerror or error}"


def _end_in_order() -> None:
    """Let a request to end unwind the program, so that no temporary file stays behind."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _prefixed(text: str) -> str:
    """Return a message that says it is an error, once."""
    return text if "error: " in text.split("\n", 1)[0] else f"error: {text}"
