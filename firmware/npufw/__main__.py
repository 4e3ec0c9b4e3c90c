"""Lets ``python -m npufw`` stand for the command ``npufw``."""

from npufw.cli import main

main()
