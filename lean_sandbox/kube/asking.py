"""One object asked for before anything else is done, for as long as the server takes to answer."""

from __future__ import annotations

from typing import Final, TypeVar

import structlog

from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ControlPlaneError, Forbidden, NotFound
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import Resource

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 15.0

log = structlog.get_logger("controller")


async def ask(
    client: Client,
    clock: Clock,
    resource: Resource,
    namespace: str,
    name: str,
    type_: type[T],
    *,
    unknown: str,
) -> T | None:
    """Return an object, ``None`` where there is none or the server does not tell.

    A server that does not answer is asked again until it does; one that refuses for lack of a
    permission is taken for one with nothing to tell. Both are logged, as ``unknown``.
    """
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await client.get(resource, namespace, name, type_, lane=Lane.CLIENT)
        except NotFound:
            return None
        except Forbidden as error:
            log.warning(unknown, problem=error.message or str(error))
            return None
        except ControlPlaneError as error:
            log.warning(unknown, problem=str(error), next_s=pause_s)
        await clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
