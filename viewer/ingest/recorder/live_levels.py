"""Levels of detail of a curve."""

PER_LEVEL = 64
"""Number of rows of a level that form one row of the next coarser level."""
