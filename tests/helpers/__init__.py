"""Fixtures, tiny models and worker functions that several test modules share."""
