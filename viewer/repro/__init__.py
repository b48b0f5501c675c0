"""Scripts that run one launch of a trace again. No torch."""
