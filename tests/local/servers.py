"""A server with options of its own, and paths on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.conformance.api import Api
from tests.conformance.objects import WIDGET_DEFINITION, WIDGETS

MAPS = "/api/v1/namespaces/default/configmaps"
LIVE = f"{WIDGETS}/namespaces/default/widgets"


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[tuple[ControlPlane, Api]]:
    """Start a server with options of its own."""
    settings = LocalSettings(**options)
    async with (
        ControlPlane(settings, crds=[WIDGET_DEFINITION]) as plane,
        Api(plane.url, plane.create_token()) as api,
    ):
        yield plane, api
