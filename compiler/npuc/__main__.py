"""Lets ``python -m npuc`` stand for the command ``npuc``."""

from npuc.cli import main

main()
