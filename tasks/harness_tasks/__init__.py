"""Tasks: how each kind of data is read, what a head predicts on it, and how predictions are scored.

A task knows nothing of encoders or strategies: it imports :mod:`harness.data`, :mod:`harness.task` and
:mod:`harness.errors` only.
"""
