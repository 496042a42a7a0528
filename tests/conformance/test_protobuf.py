"""Laws of bodies in protobuf, the form that clients in Go send unless told otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lean_sandbox.local.write.encodings import PROTOBUF
from tests.conformance.api import Api, Room
from tests.conformance.encoding import encode
from tests.conformance.kinds import Sample, samples

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.kind.qualified_plural)
async def test_a_body_in_protobuf_says_what_its_json_says(
    api: Api, room: Room, sample: Sample
) -> None:
    """Objects of every kind are created alike in both forms."""
    path = sample.path(room.name)
    stored = []
    for content in ("application/json", PROTOBUF):
        name = f"{room.name}-pb"
        body = sample.body(name, room.name)
        sent = encode(body) if content == PROTOBUF else body
        reply = await api.post(path, sent, content=content, dryRun="All")
        uid = reply.ok()["metadata"]["uid"]
        made = json.loads(reply.body.replace(uid.encode(), b"the-uid"))
        for varying in ("creationTimestamp", "managedFields"):
            made["metadata"].pop(varying, None)
        stored.append(made)
    assert stored[0] == stored[1]


async def test_a_body_that_is_no_protobuf_is_a_bad_request(room: Room) -> None:
    """Neither other bytes, nor cut ones, nor a kind nobody knows, are a failure of the server."""
    whole = encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    other = encode({"apiVersion": "v1", "kind": "ConfigMap"}).replace(b"ConfigMap", b"ConfigMop")
    for body in (b"k8s", b"k8s\0\xff", b"{}", whole[:-1], other):
        assert (await room.api.post(room.maps, body, content=PROTOBUF)).status == 400, body


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.kind.qualified_plural)
async def test_an_object_put_back_in_protobuf_is_unchanged(
    api: Api, room: Room, sample: Sample
) -> None:
    """What a typed client has read and writes again is the same version: nobody is woken."""
    body = sample.body(f"{room.name}-back", room.name)
    path = f"{sample.path(room.name)}/{body['metadata']['name']}"
    (await api.post(sample.path(room.name), body)).ok()
    written: list[Any] = []
    while len(written) < 2:  # kube-apiserver stores a new claim once more; its controllers write
        read = (await api.get(path)).ok()
        reply = await api.put(path, encode(read), content=PROTOBUF)
        if reply.status != 409:
            written.append((read["metadata"]["resourceVersion"], reply.version))
    (await api.delete(path, gracePeriodSeconds="0")).ok()
    before, after = written[-1]
    assert before == after
