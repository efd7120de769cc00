"""Transformers: BERT and its family, GPT and GPT-2."""
