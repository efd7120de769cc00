"""Tables as text, Markdown, csv, JSON and LaTeX."""
