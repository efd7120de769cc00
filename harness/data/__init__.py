"""Words, tokens and batches: the common currency of encoders, bodies, heads and tasks.

Importing this package does not import torch; :mod:`harness.data.tokens` and :mod:`harness.data.batch` do.
"""
