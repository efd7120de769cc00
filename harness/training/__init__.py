"""Training and evaluation of one cell."""
