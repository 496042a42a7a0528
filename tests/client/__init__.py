"""Laws about what the official Python client sees, run with that client."""
