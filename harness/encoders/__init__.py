"""Pretrained encoders and the readers of their published formats."""
