"""One server for each module of laws, and a namespace for each test.

With ``LEAN_SANDBOX_LAWS_URL`` (and ``_TOKEN``, ``_CA``: a token and the path of a PEM file) the
laws that need nothing but HTTP are asked of that API server instead of the embedded one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lean_sandbox.local.controlplane import ControlPlane
from tests.local.api import WIDGET_DEFINITION, WIDGETS, Api, Room, answers

_OTHER = os.environ.get("LEAN_SANDBOX_LAWS_URL")
_rooms = itertools.count(1)


def _authority() -> str | None:
    path = os.environ.get("LEAN_SANDBOX_LAWS_CA")
    return Path(path).read_text() if path else None


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def embedded() -> AsyncIterator[ControlPlane | None]:
    """Give the embedded server, None where another one is asked."""
    if _OTHER:
        yield None
        return
    async with ControlPlane(crds=[WIDGET_DEFINITION]) as started:
        yield started


@pytest.fixture
def plane(embedded: ControlPlane | None) -> ControlPlane:
    """Give the embedded server to a test that needs more than HTTP."""
    if embedded is None:
        pytest.skip("asks for more than HTTP")
    return embedded


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def api(embedded: ControlPlane | None) -> AsyncIterator[Api]:
    """Give the server the laws are asked of, as an administrator."""
    if embedded is not None:
        async with Api(embedded.url, embedded.create_token()) as client:
            yield client
        return
    assert _OTHER is not None
    async with Api(_OTHER, os.environ["LEAN_SANDBOX_LAWS_TOKEN"], ca=_authority()) as client:
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await client.post(definitions, WIDGET_DEFINITION)
        await answers(client, f"{WIDGETS}/widgets")
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def room(api: Api) -> AsyncIterator[Room]:
    """Give a namespace of this test's own."""
    name = f"laws-{os.getpid()}-{next(_rooms)}"
    (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok()
    await answers(api, f"/api/v1/namespaces/{name}/serviceaccounts/default")
    yield Room(api, name)
    await api.delete(f"/api/v1/namespaces/{name}")
