"""Figures of the documentation, one file each with ``draw(path)``; an SVG, drawn from what is run.

``python -m tools.figures NAME ...`` writes them beside the pages that show them.
"""
