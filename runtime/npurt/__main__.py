"""Lets ``python -m npurt`` stand for the command ``npurt``."""

from npurt.cli import main

main()
