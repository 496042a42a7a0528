"""What was asked of the server, by whom, and how it went."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lean_sandbox.local.target import Target

_MOST_ENTRIES: Final = 200_000


@dataclass(slots=True)
class AuditEntry(Target):
    """One request; watches are entered when their stream begins and grow until it ends."""

    user: str = ""
    code: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    latency_s: float = 0.0

    @property
    def what(self) -> str:
        """Return ``verb resource/subresource``, the way requests are counted."""
        return f"{self.verb} {self.full_resource or self.path}"


class AuditLog:
    """The newest requests, oldest first."""

    def __init__(self) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=_MOST_ENTRIES)
        self.total = 0
        """Requests ever entered, also those already dropped."""
        self.listeners: list[Callable[[AuditEntry], None]] = []
        """Called with every request as it is entered: its code may not be known yet."""

    def add(self, entry: AuditEntry) -> None:
        """Enter one request."""
        self._entries.append(entry)
        self.total += 1
        for listener in self.listeners:
            listener(entry)

    def keep(self, most: int) -> None:
        """Keep the newest ``most`` requests alone, now and from now on."""
        self._entries = deque(self._entries, maxlen=most)

    def reset(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.total = 0

    @property
    def entries(self) -> list[AuditEntry]:
        """Return the kept entries."""
        return list(self._entries)

    def select(
        self,
        *,
        user: str | None = None,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        user_agent: str | None = None,
    ) -> list[AuditEntry]:
        """Return the entries that agree with everything given; ``user_agent`` by its beginning."""
        wanted = {
            "user": user,
            "verb": verb,
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
            "name": name,
        }
        exact = {key: value for key, value in wanted.items() if value is not None}
        return [
            entry
            for entry in self._entries
            if all(getattr(entry, key) == value for key, value in exact.items())
            and (user_agent is None or entry.user_agent.startswith(user_agent))
        ]

    def counts(
        self, user: str | None = None, *, user_agent: str | None = None, watches: bool = False
    ) -> Counter[str]:
        """Return how often each ``verb resource/subresource`` was asked, watches only if wanted."""
        return Counter(
            entry.what
            for entry in self.select(user=user, user_agent=user_agent)
            if watches or entry.verb != "watch"
        )

    def codes(self, user: str | None = None, *, at_least: int = 400) -> Counter[str]:
        """Return how often each ``code verb resource`` from ``at_least`` on was answered."""
        return Counter(
            f"{entry.code} {entry.what}"
            for entry in self.select(user=user)
            if entry.code >= at_least
        )
