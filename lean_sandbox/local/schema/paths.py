"""Paths of fields as Kubernetes writes them in error messages."""

from __future__ import annotations


def child(path: str, name: str) -> str:
    """Return the path of a named field."""
    return f"{path}.{name}" if path else name


def index(path: str, position: int) -> str:
    """Return the path of a list item."""
    return f"{path}[{position}]"


def member(path: str, key: str | int) -> str:
    """Return the path of a field or of a list item."""
    return index(path, key) if isinstance(key, int) else child(path, key)


def key(path: str, name: str) -> str:
    """Return the path of a map entry."""
    return f"{path}[{name}]"
