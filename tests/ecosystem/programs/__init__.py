"""Small programs that import nothing of the tests; each prints its result exactly and its number of iterations."""
