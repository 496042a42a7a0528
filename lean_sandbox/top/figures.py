"""The figures that are shown, and printed as JSON: the names of their fields are kept stable.

``None`` stands for what is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from lean_sandbox.watch.kind import Key

# Below that many claims, one in a hundred is none of them.
_LEAST_FOR_P99: Final = 100


class PoolFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A pool: its members, and the claims that name it.

    A member is ``free`` if it is Ready, ``starting`` if it is on its way there, else ``stuck``.
    Claims with a Sandbox are ``claimed``, of which ``warm`` have theirs from a pool; those without
    are ``waiting``. ``cause`` is why the controller says that the pool makes no progress, "" where
    it says nothing.
    """

    namespace: str
    name: str
    template: str
    desired: int
    free: int
    starting: int
    stuck: int
    claimed: int
    warm: int
    waiting: int
    cause: str = ""

    @property
    def warm_share(self) -> float | None:
        """The share of the claims with a Sandbox that have it from a pool."""
        return self.warm / self.claimed if self.claimed else None


class NotReady(msgspec.Struct, frozen=True, kw_only=True):
    """The claims, or the Sandboxes, that are not Ready for one reason.

    ``is_refused`` says that they are not served until somebody changes something. The claim that
    was last seen so is the example; ``message`` is what its condition says.
    """

    kind: str
    reason: str
    count: int
    is_refused: bool
    example_namespace: str = ""
    example_name: str = ""
    message: str = ""


class LastClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One of the claims created last; ``launch`` is warm or cold, "" without a Sandbox.

    ``took_ms`` is the time from the controller's first sight of it to Ready.
    """

    namespace: str
    name: str
    pool: str
    sandbox: str
    launch: str
    is_ready: bool
    reason: str
    created_at: str
    took_ms: float | None


class UntilReady(msgspec.Struct, frozen=True, kw_only=True):
    """How long claims took from the controller's first sight to Ready.

    Of the ``claims`` that became Ready last. ``p99_ms`` is None for fewer than 100 of them.
    """

    claims: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class ClaimFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All claims. ``per_second`` counts those created in the last ``window_s`` seconds."""

    total: int
    ready: int
    per_second: float | None
    window_s: float
    until_ready: UntilReady


class SandboxFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All Sandboxes, members of pools included."""

    total: int
    ready: int


class ControllerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller says of itself, since its start; None where it does not say so."""

    url: str
    memory_bytes: float | None = None
    cpu_seconds: float | None = None
    cores: float | None = None
    queued: float | None = None
    warm: float | None = None
    cold: float | None = None
    is_leading: bool | None = None
    failing_watches: tuple[str, ...] = ()


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment. ``namespace`` is "" for all of them."""

    at: str
    server: str
    namespace: str
    pools: tuple[PoolFigures, ...]
    claims: ClaimFigures
    sandboxes: SandboxFigures
    not_ready: tuple[NotReady, ...]
    last_claims: tuple[LastClaim, ...]
    controller: ControllerFigures | None = None
    problems: tuple[str, ...] = ()


def until_ready(took_s: Sequence[float]) -> UntilReady:
    """Return the percentiles of these times, by the nearest rank."""
    ranked = sorted(took_s)
    return UntilReady(
        claims=len(ranked),
        p50_ms=_ms(ranked, 50) if ranked else None,
        p99_ms=_ms(ranked, 99) if len(ranked) >= _LEAST_FOR_P99 else None,
        max_ms=_ms(ranked, 100) if ranked else None,
    )


def _ms(ranked: Sequence[float], percent: int) -> float:
    rank = max(1, -(-len(ranked) * percent // 100))
    return round(ranked[rank - 1] * 1000.0, 3)


class Scraped(msgspec.Struct, frozen=True):
    """What one page says; ``causes`` are why pools make no progress."""

    controller: ControllerFigures
    causes: dict[Key, str]
