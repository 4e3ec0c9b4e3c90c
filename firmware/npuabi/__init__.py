"""The contract between compiler and firmware: records, blob, targets, rounding, timing."""
