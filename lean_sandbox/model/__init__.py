"""The API kinds as data and pure functions."""
