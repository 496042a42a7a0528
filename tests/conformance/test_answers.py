"""The recorded answers to objects good and bad, asked over the wire of both servers.

They are kept beside the tests of the schemas (``tests/local/schema``), which read them without a
server; here each is one request that stores nothing.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.api import Api, Reply, Room, open_room
from tests.local.schema.answers import cases, causes

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
_PLURALS = {
    "ConfigMap": "configmaps",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "Sandbox": "sandboxes",
    "SandboxClaim": "sandboxclaims",
    "SandboxTemplate": "sandboxtemplates",
    "SandboxWarmPool": "sandboxwarmpools",
    "Secret": "secrets",
    "Service": "services",
}


def path_of(room: Room, obj: Json) -> str:
    """Return the collection that an object belongs to."""
    version = obj["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{room.name}/{_PLURALS[obj['kind']]}"


def assert_answer(reply: Reply, answer: Json) -> None:
    """Fail unless a reply is the recorded one."""
    if answer.get("accepted"):
        made = reply.ok()
        if "spec" in answer:
            assert made["spec"] == answer["spec"]
        return
    assert reply.status == answer["code"], reply.body
    if answer["code"] != 422:
        assert reply.message == answer["message"]
        return
    assert causes(reply.json["details"]["causes"]) == causes(answer["causes"])


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def hall(api: Api) -> AsyncIterator[Room]:
    """Give one namespace to all tests of this module: none of them leaves anything in it."""
    async with open_room(api) as made:
        yield made


@pytest.mark.parametrize("case", cases("custom") + cases("builtin"))
async def test_an_object_is_taken_or_refused_in_these_words(hall: Room, case: Json) -> None:
    """Acceptance, pruned and defaulted spec, code, causes and their texts."""
    obj = copy.deepcopy(case["object"])
    obj["metadata"].pop("namespace", None)
    reply = await hall.api.post(path_of(hall, obj), obj, dryRun="All")
    assert_answer(reply, case["answer"])
