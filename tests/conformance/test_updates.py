"""Changes of objects of built-in kinds are answered as by kube-apiserver 1.36.

``updates.json`` has a line for each: the kind, the object, and its patches: subresource, content
type, body, and what was answered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.api import Room
from tests.conformance.kinds import comparable
from tests.conformance.objects import widget

Json = dict[str, Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")

_CHANGES: list[tuple[str, Json, list[tuple[str, str, Any, Json]]]] = json.loads(
    (Path(__file__).parent / "updates.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("number", range(len(_CHANGES)))
async def test_the_changes_of_an_object(room: Room, number: int) -> None:
    """Code and causes of each; of an accepted one everything but the metadata.

    Causes that come of two checks at once are told twice by a real server.
    """
    plural, body, patches = _CHANGES[number]
    path = f"{room.core}/{plural}"
    (await room.api.post(path, body)).ok()
    for subresource, content, patch, answer in patches:
        name = body["metadata"]["name"]
        reply = await room.api.patch(f"{path}/{name}{subresource}", patch, content)
        assert reply.status == answer["code"], reply.body
        if reply.status == 200:
            assert told(comparable(reply.json)) == told(answer["made"])
        elif "causes" in answer:
            found = reply.json["details"]["causes"]
            shown = {
                (one["field"], one["reason"], one["message"].partition("\n@@")[0]) for one in found
            }
            assert shown == {tuple(one) for one in answer["causes"]}


def told(made: Json) -> Json:
    """Return an object without the times of its conditions."""
    for one in (made.get("status") or {}).get("conditions") or ():
        one.pop("lastTransitionTime", None)
        one.pop("lastProbeTime", None)
    return made


async def test_another_object_is_not_replaced_whatever_its_version(room: Room) -> None:
    """A PUT under the uid of another object conflicts, also where it lacks a version."""
    await room.widget("w")
    body = widget("w", metadata={"uid": "another"})
    (await room.api.put(f"{room.widgets}/w", body)).refused(409, "Conflict")
