"""A request to a resource path as handlers get it, and the answer they give."""

from __future__ import annotations

from dataclasses import dataclass, field

from lean_sandbox.local.auth import User
from lean_sandbox.local.registry import Kind
from lean_sandbox.local.target import Target


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to a resource path."""

    target: Target
    kind: Kind
    user: User
    body: bytes
    content_type: str
    accept: str
    user_agent: str


@dataclass(slots=True)
class Answer:
    """A whole answer: code, encoded body, and headers beyond the usual."""

    code: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    content_type: str = "application/json"
