"""What the API server makes of Sandboxes: schema, defaults, rules, status, the printed table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import Invalid
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.local.controlplane import ControlPlane
from tests.support.clients import connected, connection_to
from tests.support.clock import FakeClock
from tests.support.volumes import volume
from tests.support.world import NS, sandbox

Json = dict[str, Any]
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


class User:
    """Somebody with kubectl: every call is one request over HTTP."""

    def __init__(self, client: Client, plane: ControlPlane) -> None:
        self.client = client
        self.plane = plane

    async def create(self, body: Json) -> Json:
        """Create a Sandbox and return what the server stored."""
        await self.client.create(SANDBOXES, body, bytes, namespace=NS)
        return await self.read(body["metadata"]["name"])

    async def read(self, name: str = "sb-1") -> Json:
        """Read a Sandbox."""
        found = await self.client.get(SANDBOXES, name, dict, namespace=NS)
        assert found is not None
        return found

    async def patch(self, patch: Json, *, name: str = "sb-1", subresource: str = "") -> Json:
        """Merge-patch a Sandbox and return the answer."""
        return await self.client.patch(
            SANDBOXES, name, patch, dict, namespace=NS, subresource=subresource or None
        )

    async def refusal(self, body: Json) -> str:
        """Create what must not be accepted; return the server's words."""
        with pytest.raises(Invalid) as caught:
            await self.client.create(SANDBOXES, body, bytes, namespace=NS)
        return caught.value.message


@pytest.fixture
async def user() -> AsyncIterator[User]:
    """Start a control plane without a controller, and its user."""
    clock = FakeClock()
    async with ControlPlane(clock=clock) as plane:
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        async with connected(connection_to(plane), clock=clock) as client:
            yield User(client, plane)


@pytest.mark.case(1)
async def test_modes_left_out_are_stored_as_running_and_retain(user: User) -> None:
    """Case 1: the schema writes down both modes, so that every reader sees the same."""
    stored = await user.create(sandbox())
    assert stored["spec"]["operatingMode"] == "Running"
    assert stored["spec"]["shutdownPolicy"] == "Retain"
    assert "service" not in stored["spec"]
    chosen = {"operatingMode": "Suspended", "shutdownPolicy": "Delete"}
    other = await user.create(sandbox("sb-2", spec=chosen))
    assert {key: other["spec"][key] for key in chosen} == chosen


@pytest.mark.case(2, 3, 4)
async def test_unknown_modes_and_times_are_refused_with_the_field_named(user: User) -> None:
    """Case 2, 3, 4: only listed words and RFC 3339 times get in; the refusal names the field."""
    for field, value in (
        ("operatingMode", "Paused"),
        ("shutdownPolicy", "Keep"),
        ("shutdownTime", "tomorrow"),
    ):
        message = await user.refusal(sandbox(spec={field: value}))
        assert f"spec.{field}" in message, message
        assert value in message, message
    assert user.plane.store.find("sandboxes.agents.x-k8s.io", NS, "sb-1") is None
    await user.create(sandbox(spec={"shutdownTime": "2026-01-02T03:04:05.5+02:00"}))
    for field, value in (("operatingMode", "Paused"), ("shutdownPolicy", "Keep")):
        with pytest.raises(Invalid):
            await user.patch({"spec": {field: value}})


@pytest.mark.case(5)
async def test_a_template_without_its_required_parts_is_refused(user: User) -> None:
    """Case 5: podTemplate, its spec and the containers of that have to be there."""
    whole = sandbox()
    for spec, missing in (
        ({}, "spec.podTemplate"),
        ({"podTemplate": {}}, "spec.podTemplate.spec"),
        ({"podTemplate": {"spec": {}}}, "spec.podTemplate.spec.containers"),
    ):
        message = await user.refusal({**whole, "spec": spec})
        assert f"{missing}: Required value" in message
    message = await user.refusal({key: whole[key] for key in ("apiVersion", "kind", "metadata")})
    assert "spec: Required value" in message


@pytest.mark.case(6)
async def test_claim_templates_never_change_once_a_sandbox_exists(user: User) -> None:
    """Case 6: adding, dropping, resizing, reordering claim templates fails, other edits do not."""
    two = [volume("data"), volume("logs")]
    await user.create(sandbox(spec={"volumeClaimTemplates": two}))
    await user.create(sandbox("bare"))
    forbidden: tuple[tuple[str, Any], ...] = (
        ("bare", [volume("data")]),
        ("bare", []),
        ("sb-1", None),
        ("sb-1", [*two, volume("more")]),
        ("sb-1", [volume("data", "2Gi"), volume("logs")]),
        ("sb-1", [volume("logs"), volume("data")]),
        ("sb-1", [volume("data")]),
    )
    for name, templates in forbidden:
        with pytest.raises(Invalid, match="volumeClaimTemplates is immutable"):
            await user.patch({"spec": {"volumeClaimTemplates": templates}}, name=name)
    changed = await user.patch({"spec": {"service": True, "volumeClaimTemplates": two}})
    assert changed["spec"]["service"] is True
    assert changed["metadata"]["generation"] == 2
    assert (await user.read("bare"))["metadata"]["generation"] == 1


@pytest.mark.case(7)
async def test_what_the_schema_does_not_know_is_dropped(user: User) -> None:
    """Case 7: a template has labels and annotations only; any other field is not stored."""
    metadata = {"name": "mine", "labels": {"a": "b"}, "finalizers": ["x/y"]}
    body = sandbox(template={"metadata": metadata}, spec={"replicas": 3})
    stored = await user.create(body)
    assert stored["spec"]["podTemplate"]["metadata"] == {"labels": {"a": "b"}}
    assert "replicas" not in stored["spec"]


@pytest.mark.case(8)
async def test_spec_and_status_are_written_on_their_own_paths_only(user: User) -> None:
    """Case 8: status sent to the object, and spec sent to its status, are ignored."""
    await user.create({**sandbox(), "status": {"nodeName": "made-up"}})
    assert "status" not in await user.read()
    await user.patch({"spec": {"service": True}, "status": {"nodeName": "made-up"}})
    stored = await user.read()
    assert "status" not in stored
    assert stored["metadata"]["generation"] == 2
    both = {"spec": {"service": False}, "status": {"nodeName": "node-1"}}
    await user.patch(both, subresource="status")
    stored = await user.read()
    assert stored["status"] == {"nodeName": "node-1"}
    assert stored["spec"]["service"] is True
    # The generation counts what is wanted, not what is reported.
    assert stored["metadata"]["generation"] == 2


@pytest.mark.case(9)
async def test_kubectl_get_prints_readiness_its_reason_and_the_age(user: User) -> None:
    """Case 9: the table has Name, Ready, Reason, Age; the kind answers to sandbox as well.

    With ``-o wide`` there are more.
    """
    await user.create(sandbox())
    moment = "2026-01-02T03:04:05Z"
    shown = {"type": "Ready", "status": "False", "reason": "PodFailed", "message": "Pod failed"}
    status = {"conditions": [{**shown, "lastTransitionTime": moment}]}
    await user.patch({"status": status}, subresource="status")
    table = await user.client.get(SANDBOXES, "sb-1", dict, namespace=NS, accept=TABLE) or {}
    columns = [one["name"] for one in table["columnDefinitions"] if not one["priority"]]
    assert columns == ["Name", "Ready", "Reason", "Age"]
    assert table["rows"][0]["cells"][:4] == ["sb-1", "False", "PodFailed", "0s"]
    answer = await user.client.transport.request("GET", "/apis/agents.x-k8s.io/v1beta1")
    resources = msgspec.json.decode(answer.body)["resources"]
    (found,) = [one for one in resources if one["name"] == "sandboxes"]
    assert found["singularName"] == "sandbox"
    assert found["shortNames"] == ["sandbox"]
    assert [one["name"] for one in resources] == ["sandboxes", "sandboxes/status"]


@pytest.mark.case(10)
async def test_a_port_without_protocol_is_stored_as_tcp(user: User) -> None:
    """Case 10: protocol is part of a port's key, so the schema fills it in."""
    ports = [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}]
    container = {"name": "main", "image": "busybox", "ports": ports}
    stored = await user.create(sandbox(pod_spec={"containers": [container]}))
    kept = stored["spec"]["podTemplate"]["spec"]["containers"][0]["ports"]
    assert [port["protocol"] for port in kept] == ["TCP", "UDP"]
    twice = {**container, "ports": [{"containerPort": 80}, {"containerPort": 80}]}
    message = await user.refusal(sandbox("sb-2", pod_spec={"containers": [twice]}))
    assert "Duplicate value" in message


async def test_a_service_is_refused_for_a_name_too_long_for_one(user: User) -> None:
    """A Service's name has 63 characters at most; without one the name may be longer."""
    long = "s" * 64
    message = await user.refusal(sandbox(long, spec={"service": True}))
    assert "63" in message
    await user.create(sandbox(long))
    with pytest.raises(Invalid):
        await user.patch({"spec": {"service": True}}, name=long)
    await user.create(sandbox("s" * 63, spec={"service": True}))
