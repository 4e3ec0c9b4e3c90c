"""Models of what happens to devices in the field, one file each: hooks of npufw.faults, seeded."""
