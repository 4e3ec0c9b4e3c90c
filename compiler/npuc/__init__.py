"""The compiler: graph text in, a blob of 64-byte descriptors out."""
