"""Shows what the judge found: verdicts on launches, wrong buffers, and what was not judged."""
