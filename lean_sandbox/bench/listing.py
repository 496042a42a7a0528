"""What a start of the controller has to wait for in any case: the lists of all that it watches."""

from __future__ import annotations

from typing import Final

import msgspec

from lean_sandbox.bench.workers import open_client
from lean_sandbox.clock import Clock
from lean_sandbox.kube import resources as kinds
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.resources import Page

_PAGE_SIZE: Final = 250
_LISTED: Final = (
    *(kinds.SANDBOXES, kinds.PODS, kinds.SERVICES, kinds.SANDBOXCLAIMS),
    *(kinds.SANDBOXTEMPLATES, kinds.SANDBOXWARMPOOLS, kinds.NETWORKPOLICIES),
)


async def list_everything(connection: Connection, clock: Clock) -> float:
    """List what the controller lists at its start; return the seconds that took.

    Each page has a connection of its own, as curl makes one for each; no object is decoded.
    """
    began = clock.monotonic()
    for resource in _LISTED:
        token: str | None = None
        while token != "":
            async with open_client(connection, clock, agent="bench-list") as client:
                page = await client.list(
                    resource, Page[msgspec.Raw], chunk_size=_PAGE_SIZE, continue_=token
                )
            token = page.metadata.continue_
    return clock.monotonic() - began
