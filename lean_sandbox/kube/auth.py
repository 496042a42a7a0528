"""Credentials that go into the Authorization header, and those that change over time.

A transport asks :meth:`Auth.authorization` before each request and, once after a 401,
:meth:`Auth.refresh`. Client certificates of a kubeconfig live in the TLS context and need nothing
here; only a credential plugin can replace them later, which raises :attr:`Auth.identity`.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Protocol

from lean_sandbox.clock import Clock
from lean_sandbox.kube.errors import CredentialFault

# How old a token read from a file may get. The kubelet rotates it at 80 % of its life time (at
# least 10 minutes), so a minute is early enough and costs one small read.
_TOKEN_FILE_MAX_AGE_S = 60.0


class Auth(Protocol):
    """A credential."""

    @property
    def identity(self) -> int:
        """Grows when the TLS client certificate was replaced: older connections have the old."""

    async def authorization(self) -> str | None:
        """Return the Authorization header, None for none. Raises CredentialFault."""

    async def refresh(self, refused: str | None, /) -> bool:
        """Look for a newer credential than ``refused``; return whether trying again makes sense."""


class HeaderAuth:
    """A header that never changes; none for an open server or a client certificate."""

    identity = 0

    def __init__(self, header: str | None = None) -> None:
        self._header = header

    async def authorization(self) -> str | None:
        """Return the header."""
        return self._header

    async def refresh(self, _refused: str | None, /) -> bool:
        """Return False: there is nothing newer."""
        return False


def bearer(token: str) -> HeaderAuth:
    """Return the credential of a fixed token."""
    return HeaderAuth(f"Bearer {token}")


def basic(username: str, password: str) -> HeaderAuth:
    """Return the credential of a user name and password (RFC 7617)."""
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return HeaderAuth(f"Basic {pair}")


class TokenFileAuth:
    """A token in a file that somebody else keeps fresh, such as a service account's.

    Read at first use, once a minute, and after a 401. While the file cannot be read an earlier
    token goes on being used; without one the request fails with CredentialFault.
    The read is done in place: the file is some hundred bytes in memory-backed storage.
    """

    identity = 0

    def __init__(self, file: str | Path, clock: Clock) -> None:
        self._file = Path(file)
        self._clock = clock
        self._header: str | None = None
        self._read_at = 0.0
        #: Reads that failed while an earlier token was still in use.
        self.failed_reads = 0

    async def authorization(self) -> str | None:
        """Return the header of the current token; CredentialFault when there never was one."""
        age_s = self._clock.monotonic() - self._read_at
        if self._header is None or age_s >= _TOKEN_FILE_MAX_AGE_S:
            self._read()
        return self._header

    async def refresh(self, refused: str | None, /) -> bool:
        """Read the file again; return whether it holds another token than the refused one."""
        self._read()
        return self._header != refused

    def _read(self) -> None:
        self._read_at = self._clock.monotonic()
        try:
            token = self._file.read_text(encoding="utf-8").strip()
            problem = "" if is_token(token) else "it does not hold a token"
        except (OSError, UnicodeDecodeError) as fault:
            problem = str(fault)
        if not problem:
            self._header = f"Bearer {token}"
        elif self._header is None:
            raise CredentialFault(f"token file {self._file} cannot be used: {problem}")
        else:
            self.failed_reads += 1


def is_token(text: str) -> bool:
    """Whether ``text`` can stand in a header line."""
    return bool(text) and text.isascii() and text.isprintable()
