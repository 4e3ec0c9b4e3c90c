"""Programs for the project's own engineers; run them as ``python -m tools.NAME``."""
