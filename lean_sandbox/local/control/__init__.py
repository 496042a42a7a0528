"""The controllers that the server brings along."""
