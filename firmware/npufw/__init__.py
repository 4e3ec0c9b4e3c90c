"""The firmware, emulated: checks a blob, runs it bit-exactly, models its cycles."""

from npuabi import __version__

__all__ = ["__version__"]
