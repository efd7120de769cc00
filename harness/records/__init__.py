"""Cells, their records and predictions, and the life cycle of a cell folder."""
