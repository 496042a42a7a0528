r"""Cutting the bytes of a watch into lines.

Only the byte ``\\n`` ends a line. Text splitting would also cut at U+0085 or U+2028, which Go's
encoder leaves unescaped inside strings: anybody who can annotate a watched object could then break
the watch.
"""

from __future__ import annotations


class LineTooLongError(Exception):
    """A line grew past the limit; the stream cannot be trusted any more."""


class LineSplitter:
    """Collects chunks and returns the complete lines among them.

    ``limit_bytes`` bounds a line, finished or not; an object of the API server is at most about
    3 MiB, so the default of 16 MiB is only ever reached by a broken peer.
    """

    __slots__ = ("_limit_bytes", "_pending", "_pending_bytes")

    def __init__(self, limit_bytes: int = 16 * 1024 * 1024) -> None:
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._limit_bytes = limit_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk and return the lines it completes, without their ends, skipping empty ones.

        Raises :class:`LineTooLongError` when a line exceeds the limit.
        """
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and self._pending:
            self._keep(lines[0])
            lines[0] = b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
        if tail:
            self._keep(tail)
        if len(chunk) > self._limit_bytes:
            for line in lines:
                self._check(len(line))
        return [line for line in lines if line and not line.isspace()]

    @property
    def pending_bytes(self) -> int:
        """Bytes of a line whose end has not been seen."""
        return self._pending_bytes

    def _keep(self, piece: bytes) -> None:
        self._pending.append(piece)
        self._pending_bytes += len(piece)
        self._check(self._pending_bytes)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            raise LineTooLongError(f"a line of the watch exceeds {self._limit_bytes} bytes")
