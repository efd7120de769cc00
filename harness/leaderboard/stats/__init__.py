"""Confidence intervals, paired tests and comparisons across tasks."""
