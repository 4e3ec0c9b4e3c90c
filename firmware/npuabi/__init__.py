"""The contract between compiler and firmware: records, blob, targets, rounding, timing."""

__all__ = ["__version__"]

__version__ = "0.1.0"
"""Of the whole distribution: compiler, firmware and contract are released together."""
