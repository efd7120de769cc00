"""Configuration: schema, recipes, composition, and its resolution into cells."""
