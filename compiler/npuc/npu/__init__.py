"""L3: the NPU's own ops, on buffers in SRAM, arena and constants."""
