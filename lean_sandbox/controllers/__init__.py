"""Reconcilers: each a pure plan and an act."""
