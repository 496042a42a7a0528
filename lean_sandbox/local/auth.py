"""Who is asking: bearer tokens handed out by the server, and those of service accounts."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NoReturn

import msgspec

ISSUER: Final = "https://kubernetes.default.svc"
"""Who signs the tokens of service accounts, and the audience that the server itself is."""
AUTHENTICATED: Final = "system:authenticated"
_PLACE: Final = "kubernetes.io"
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"

FindUid = Callable[[str, str], str | None]
"""Returns the uid of a service account by namespace and name; None when there is none."""


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A name, and the groups rights can be bound to."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def info(self) -> dict[str, Any]:
        """Return the user as reviews show it."""
        shown = {
            "username": self.name,
            "uid": self.uid,
            "groups": list(self.groups),
            "extra": {key: list(values) for key, values in self.extra},
        }
        return {key: value for key, value in shown.items() if value}


ANONYMOUS: Final = UserInfo("system:anonymous", ("system:unauthenticated",))
UNSECURED: Final = UserInfo("system:unsecured", ("system:masters", AUTHENTICATED))
"""Who asks without credentials where those are trusted."""


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of the service accounts of a namespace."""
    return (
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        AUTHENTICATED,
    )


class TokenError(Exception):
    """A token that is not accepted; the message says why."""


class Authenticator:
    """Knows tokens; those of service accounts are signed, so they survive a restart."""

    def __init__(
        self,
        key: bytes,
        now: Callable[[], datetime],
        find_uid: FindUid,
        new_id: Callable[[], str],
        *,
        nobody: UserInfo = ANONYMOUS,
    ) -> None:
        self._nobody = nobody
        self._key = key
        self._now = now
        self._find_uid = find_uid
        self._new_id = new_id
        self._static: dict[str, UserInfo] = {}

    def add(self, token: str, user: UserInfo) -> None:
        """Accept ``token`` for ``user`` until the server ends."""
        self._static[token] = user

    def derive(self, name: str) -> str:
        """Return a token for a name that only this server's key can make."""
        digest = hmac.new(self._key, f"static:{name}".encode(), hashlib.sha256).hexdigest()
        return f"local-{digest[:40]}"

    def issue(
        self,
        namespace: str,
        account: str,
        uid: str,
        lifetime_s: int,
        audiences: Iterable[str] = (ISSUER,),
    ) -> tuple[str, datetime]:
        """Return a token of a service account and when it expires."""
        start = self._now()
        second = int(start.timestamp())
        claims = {
            "aud": list(audiences),
            "exp": second + lifetime_s,
            "iat": second,
            "iss": ISSUER,
            "jti": self._new_id(),
            _PLACE: {"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}},
            "nbf": second,
            "sub": f"system:serviceaccount:{namespace}:{account}",
        }
        head = _b64(msgspec.json.encode({"alg": "HS256", "typ": "JWT"}))
        signed = f"{head}.{_b64(msgspec.json.encode(claims))}"
        return f"{signed}.{_b64(_sign(self._key, signed))}", start + timedelta(seconds=lifetime_s)

    def identify(self, authorization: str) -> UserInfo | None:
        """Return who holds the credentials of an Authorization header, None for nobody known."""
        if not authorization:
            return self._nobody
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        try:
            return self.authenticate(token.strip())[0]
        except TokenError:
            return None

    def authenticate(
        self, token: str, audiences: Iterable[str] = (ISSUER,)
    ) -> tuple[UserInfo, list[str]]:
        """Return who a token is of, and for which of the ``audiences``.

        Raises:
            TokenError: nobody whose token is known, or meant for one of the audiences.

        """
        wanted = list(audiences)
        user = self._static.get(token)
        if user is not None and ISSUER in wanted:
            return user, [ISSUER]
        claims = _read_token(self._key, token)
        if claims is None:
            raise TokenError("invalid bearer token")
        found = [one for one in claims["aud"] if one in wanted]
        if not found:
            meant, aims = (
                " ".join(f'"{one}"' for one in names) for names in (claims["aud"], wanted)
            )
            _refuse(f"token audiences [{meant}] is invalid for the target audiences [{aims}]")
        if claims["exp"] < self._now().timestamp():
            _refuse("service account token has expired")
        namespace = claims[_PLACE]["namespace"]
        account = claims[_PLACE]["serviceaccount"]
        name = account["name"]
        uid = account["uid"]
        if self._find_uid(namespace, name) != uid:
            _refuse(f'serviceaccounts "{name}" with the UID of the token not found')
        extra = ((_CREDENTIAL, (f"JTI={claims['jti']}",)),)
        return UserInfo(claims["sub"], account_groups(namespace), uid, extra), found


def _refuse(why: str) -> NoReturn:
    raise TokenError(f"[invalid bearer token, {why}]")


@lru_cache(maxsize=256)
def _read_token(key: bytes, token: str) -> dict[str, Any] | None:
    """Return what a token says that was signed with a key, None for any other.

    Remembered, because it comes with every request of its holder.
    """
    signed, _, signature = token.rpartition(".")
    try:
        if not hmac.compare_digest(_unb64(signature), _sign(key, signed)):
            return None
        claims: dict[str, Any] = msgspec.json.decode(_unb64(signed.split(".")[1]))
    except (ValueError, IndexError, msgspec.DecodeError):
        return None
    return claims


def _sign(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
