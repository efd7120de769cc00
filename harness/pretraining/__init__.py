"""Objectives that make encoders from a plain text corpus; see :mod:`harness.pretraining.base`."""
