"""Continuing an encoder's own objective on the unlabelled texts of a training split, before the task."""
