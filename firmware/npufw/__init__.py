"""The firmware, emulated: checks a blob, runs it bit-exactly, models its cycles."""
