"""Bodies: the task network between encoder and head."""
