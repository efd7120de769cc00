"""Sweeps: planning, pre-flight checks, and the process pools that run cells."""
