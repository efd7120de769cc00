"""Several encoders over the same words, concatenated."""
