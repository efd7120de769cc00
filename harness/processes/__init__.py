"""Worker processes: the preloaded fork server, device slots and ranks."""
