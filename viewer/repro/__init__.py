"""Writes scripts that repeat one launch of a trace. It needs no torch."""
