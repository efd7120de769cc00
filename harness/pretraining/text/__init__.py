"""Corpora, tokenizers and packing for pretraining."""
