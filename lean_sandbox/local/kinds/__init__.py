"""The kinds that are served, and what is said of them."""
