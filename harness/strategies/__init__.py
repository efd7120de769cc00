"""Strategies: what is carried over from pretraining, how fast it moves, and when."""
