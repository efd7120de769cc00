"""Readers of the data formats: each turns the text or bytes of one file into a table."""
