"""Domain-independent helpers that import nothing of the harness but :mod:`harness.errors`."""
