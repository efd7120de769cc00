"""Tagging: one label a word. Entities (NER, chunks) in any of the usual label schemes, or plain labels (parts
of speech)."""
