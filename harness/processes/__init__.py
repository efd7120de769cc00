"""Worker processes: the warm fork server, device slots and ranks."""
