"""Sweeps: planning, pre-flight checks, and the process pool."""
