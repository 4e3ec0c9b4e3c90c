"""NOR flash with its faults, and how models live in it through updates that power cuts short."""
