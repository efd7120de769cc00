"""Answers as spans of a context: SQuAD and whatever comes in its format."""
