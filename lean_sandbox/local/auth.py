"""Who is asking: bearer tokens handed out by the server, and those of service accounts."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec

_ISSUER: Final = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class User:
    """A name, and the groups rights can be bound to."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))
UNSECURED: Final = User("system:unsecured", ("system:masters", "system:authenticated"))
"""Who asks without credentials where those are trusted."""


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Authenticator:
    """Knows tokens; those of service accounts are signed, so they survive a restart."""

    def __init__(
        self,
        key: bytes,
        now: Callable[[], datetime],
        account_uid: Callable[[str, str], str | None],
        *,
        nobody: User = ANONYMOUS,
    ) -> None:
        self._nobody = nobody
        self._key = key
        self._now = now
        self._account_uid = account_uid
        self._static: dict[str, User] = {}

    def add(self, token: str, user: User) -> None:
        """Accept ``token`` for ``user`` until the server ends."""
        self._static[token] = user

    def derive(self, name: str) -> str:
        """Return a token for a name that only this server's key can make."""
        digest = hmac.new(self._key, f"static:{name}".encode(), hashlib.sha256).hexdigest()
        return f"local-{digest[:40]}"

    def issue(
        self, namespace: str, name: str, uid: str, lifetime_s: int, audiences: list[str]
    ) -> tuple[str, datetime]:
        """Return a service account token and when it expires."""
        start = self._now()
        end = start + timedelta(seconds=lifetime_s)
        claims = {
            "aud": audiences,
            "exp": int(end.timestamp()),
            "iat": int(start.timestamp()),
            "nbf": int(start.timestamp()),
            "iss": _ISSUER,
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": uid},
            },
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        head = _b64(msgspec.json.encode({"alg": "HS256", "typ": "JWT"}))
        signed = f"{head}.{_b64(msgspec.json.encode(claims))}"
        return f"{signed}.{_b64(_sign(self._key, signed))}", end

    def identify(self, authorization: str) -> User | None:
        """Return who holds the credentials of an Authorization header, None for nobody known."""
        if not authorization:
            return self._nobody
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return None
        return self._static.get(token) or self._account(token)

    def _account(self, token: str) -> User | None:
        said = _said(self._key, token)
        if said is None or said.expires_at < self._now().timestamp():
            return None
        if self._account_uid(said.namespace, said.account) != said.user.uid:
            return None
        return said.user


@dataclass(frozen=True, slots=True)
class _Said:
    """What the token of a service account says."""

    user: User
    namespace: str
    account: str
    expires_at: int


@lru_cache(maxsize=256)
def _said(key: bytes, token: str) -> _Said | None:
    """Return what a token says that was signed with a key, None for any other.

    Remembered, because it comes with every request of its holder.
    """
    signed, _, signature = token.rpartition(".")
    try:
        if not hmac.compare_digest(_unb64(signature), _sign(key, signed)):
            return None
        claims: Any = msgspec.json.decode(_unb64(signed.split(".")[1]))
        place = claims["kubernetes.io"]
        namespace, account = place["namespace"], place["serviceaccount"]
        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        )
        user = User(claims["sub"], groups, account["uid"])
        return _Said(user, namespace, account["name"], claims["exp"])
    except (ValueError, KeyError, IndexError, msgspec.DecodeError):
        return None


def _sign(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
