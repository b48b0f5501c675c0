"""Levels of detail of a curve."""

PER_LEVEL = 64
"""So many rows of a level are one of the next."""
