"""The failures of a reflector: what is logged, how long it pauses, why a kind may not be served."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from lean_sandbox.clock import Clock
from lean_sandbox.kube.resources import Resource

_APPLY = "lean-sandbox crds | kubectl apply --server-side -f -"
_BASE_S = 0.8
_CAP_S = 30.0
# How often a problem that lasts is logged.
_LOG_AGAIN_S = 60.0


class Failure(NamedTuple):
    """What has failed, and the bounds of the pause that follows.

    ``at_least_s`` is what the server asked for (Retry-After).
    """

    problem: str
    at_least_s: float = 0.0
    at_most_s: float = math.inf


class Failures:
    """The failures in a row of one reflector."""

    def __init__(self, clock: Clock, uniform: Callable[[], float], log: Any) -> None:
        self._clock = clock
        self._uniform = uniform
        self._log = log
        self._count = 0
        self._log_at = -math.inf
        #: The last one, ``None`` while the watch works.
        self.problem: str | None = None

    async def pause(self, failure: Failure) -> None:
        """Note a failure, log it unless that was done lately, and wait for the next attempt."""
        now = self._clock.monotonic()
        problem = failure.problem
        is_another = problem != self.problem
        self.problem = problem
        self._count += 1
        next_s = pause_s(
            self._count,
            self._uniform(),
            at_least_s=failure.at_least_s,
            at_most_s=failure.at_most_s,
        )
        if is_another or now >= self._log_at:
            self._log_at = now + _LOG_AGAIN_S
            self._log.warning("watch_interrupted", problem=problem, next_s=round(next_s, 1))
        await self._clock.sleep(next_s)

    def start_over(self) -> None:
        """Let the pauses begin with the shortest: the watch has lived for long enough."""
        self._count = 0

    def recovered(self) -> None:
        """Note that the watch works."""
        if self.problem is not None:
            self._log.info("watch_resumed")
        self.problem = None


def pause_s(
    failures: int, jitter: float, *, at_least_s: float = 0.0, at_most_s: float = math.inf
) -> float:
    """Return how long to wait after so many failures in a row: 0.8 s, doubling to 30 s.

    ``jitter``, from 0 to 1, spreads the reconnects of many clients after a server restart.
    ``at_least_s`` is what the server asked for (Retry-After).
    """
    whole_s = min(_CAP_S, at_most_s, _BASE_S * 2.0 ** min(failures - 1, 16))
    return max(whole_s * (0.5 + jitter * 0.5), at_least_s)


def why_unserved(resource: Resource) -> str:
    """Return why a list or watch of a resource gets 404, and the remedy; "" for built-in kinds.

    A namespace that does not exist has an empty list: 404 means that the kind is not served.
    """
    if not resource.group.endswith("agents.x-k8s.io"):
        return ""
    return (
        f"the CustomResourceDefinition {resource.qualified} is missing, or serves other versions"
        f" than {resource.version}, the only one this controller speaks: apply it with `{_APPLY}`;"
        " the controller waits for it. If the server refuses it because of status.storedVersions,"
        " migrate the stored objects with v0.5 of the reference first"
    )
