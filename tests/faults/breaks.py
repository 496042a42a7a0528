"""How connections break, and in what pieces watches arrive."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lean_sandbox.local.request import Target


class Break(Enum):
    """How a connection ends."""

    RESET = "reset"
    CLOSED = "half-closed"
    """Nothing more comes, and what the client says is still taken."""
    MUTE = "mute"
    """Nothing more comes, and nobody is told: a router has forgotten the connection."""
    ENDED = "ended in good order"
    """By the last chunk of a watch."""
    GONE = "ended by an ERROR event 410"
    FAILED = "ended by an ERROR event 500"
    GARBLED = "ended by a line that is no JSON"


class Grain(Enum):
    """In what pieces watches arrive."""

    WHOLE = "as they are sent"
    TORN = "each event in many small writes"
    JOINED = "several events in one write"


def _error(code: int, reason: str) -> bytes:
    said = '"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"injected"'
    return f'{{"type":"ERROR","object":{{{said},"reason":"{reason}","code":{code}}}}}\n'.encode()


LAST_WORDS = {
    Break.ENDED: b"",
    Break.GONE: _error(410, "Expired"),
    Break.FAILED: _error(500, "InternalError"),
    Break.GARBLED: b'{"type":"MODIFIED","object":{"metadata":<html>\n',
}


@dataclass(slots=True)
class Fault:
    """What befalls the next answers: they are late, or break after a share of their bytes.

    ``verb`` and ``resource`` may both be ``*``.
    """

    verb: str
    resource: str
    left: int
    late_s: float = 0.0
    how: Break | None = None
    share: float = 0.0

    def takes(self, target: Target) -> bool:
        """Tell whether an answer is among the next ones, and count it then."""
        full = target.resource + (f"/{target.subresource}" if target.subresource else "")
        if not self.left or (self.verb, self.resource) not in (("*", "*"), (target.verb, full)):
            return False
        self.left -= 1
        return True
