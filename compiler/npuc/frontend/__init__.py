"""Front ends: from a file that users write to a checked graph."""
