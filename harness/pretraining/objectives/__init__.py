"""Pretraining objectives, one module per family."""
