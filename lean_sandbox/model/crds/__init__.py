"""The definitions of the four kinds, generated from their types."""
