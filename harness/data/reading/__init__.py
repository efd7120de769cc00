"""Reading labelled data: files, tables, columns, and what is reported about how they were read."""
