"""From records to a table: read, group, choose on dev, show. Imports neither torch nor Lightning."""
