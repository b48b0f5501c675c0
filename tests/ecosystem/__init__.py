"""Whole programs as people write them: each is run as it is and recorded, and what the recording tells is compared."""
