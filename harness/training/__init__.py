"""Frozen features: computed once per encoder, data and layers, and shared by every cell that reads them."""
