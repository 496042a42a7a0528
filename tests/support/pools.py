"""Pools, their templates and their members over the wire: what tests of both controllers share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.template import SandboxTemplate, view_of_template
from lean_sandbox.model.warmpool import SandboxWarmPool, build_member, view_of_pool
from tests.support.clock import FakeClock
from tests.support.world import NS, World, open_world, running_status

__all__ = [
    "CLAIMS",
    "EXTENSIONS",
    "LAUNCH_TYPE",
    "POD_TEMPLATE_HASH",
    "POLICIES",
    "POOLS",
    "REF_HASH",
    "SANDBOXES",
    "TEMPLATES",
    "TEMPLATE_HASH",
    "TEMPLATE_REF",
    "WARM_POOL",
    "change_pool",
    "change_template",
    "claim",
    "fill",
    "ids",
    "members",
    "names_of",
    "open_pools",
    "orphan",
    "pool",
    "pool_events",
    "pool_status",
    "rest",
    "run_all",
    "start",
    "template",
]

Json = dict[str, Any]

EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"
POOLS = "sandboxwarmpools.extensions.agents.x-k8s.io"
TEMPLATES = "sandboxtemplates.extensions.agents.x-k8s.io"
CLAIMS = "sandboxclaims.extensions.agents.x-k8s.io"
SANDBOXES = "sandboxes.agents.x-k8s.io"
POLICIES = "networkpolicies.networking.k8s.io"

WARM_POOL = "agents.x-k8s.io/warm-pool-sandbox"
REF_HASH = "agents.x-k8s.io/sandbox-template-ref-hash"
TEMPLATE_HASH = "agents.x-k8s.io/sandbox-template-hash"
POD_TEMPLATE_HASH = "agents.x-k8s.io/sandbox-pod-template-hash"
LAUNCH_TYPE = "agents.x-k8s.io/launch-type"
TEMPLATE_REF = "agents.x-k8s.io/sandbox-template-ref"

# Every write that follows from others has been made by then.
_REST_S = 3.0


def template(
    name: str = "t",
    *,
    spec: Mapping[str, Any] | None = None,
    pod_spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    image: str = "busybox",
) -> Json:
    """Return a template whose Pods need no scheduler, changed as asked."""
    body = {
        "containers": [{"name": "main", "image": image}],
        "nodeName": "node-1",
        **(pod_spec or {}),
    }
    pod_template: Json = {"spec": body}
    if metadata is not None:
        pod_template["metadata"] = dict(metadata)
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxTemplate",
        "metadata": {"name": name, "namespace": NS},
        "spec": {"podTemplate": pod_template, **(spec or {})},
    }


def pool(
    name: str = "p",
    replicas: int | None = 2,
    *,
    template_name: str = "t",
    strategy: str | None = None,
) -> Json:
    """Return a pool."""
    spec: Json = {"sandboxTemplateRef": {"name": template_name}}
    if replicas is not None:
        spec["replicas"] = replicas
    if strategy is not None:
        spec["updateStrategy"] = {"type": strategy}
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxWarmPool",
        "metadata": {"name": name, "namespace": NS},
        "spec": spec,
    }


def claim(name: str = "c", *, pool_name: str = "p") -> Json:
    """Return a claim that any member of the pool satisfies."""
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxClaim",
        "metadata": {"name": name, "namespace": NS},
        "spec": {"warmPoolRef": {"name": pool_name}},
    }


@asynccontextmanager
async def open_pools(
    *before: Json,
    clock: FakeClock | None = None,
    plane: ControlPlane | None = None,
    prepare: Callable[[ControlPlane], None] | None = None,
    **more: Any,
) -> AsyncIterator[World]:
    """Open a world with the extension controllers; server and controller go by one clock.

    ``before`` are objects that exist before the controller starts; ``more`` are settings.
    """
    settings = Settings(
        extensions=True, sandbox_status_window=1.0, sandbox_status_step_window=0.0, **more
    )
    clock = clock or FakeClock()
    if plane is not None:
        async with open_world(
            settings, plane=plane, clock=clock, before=before, prepare=prepare
        ) as world:
            yield world
        return
    async with (
        ControlPlane(LocalSettings(), clock=clock) as fresh,
        open_world(settings, plane=fresh, clock=clock, before=before, prepare=prepare) as world,
    ):
        yield world


async def rest(world: World, seconds: float = _REST_S) -> None:
    """Let time pass until the controllers have nothing more to write."""
    await world.advance(seconds)


def members(world: World, pool_name: str = "p") -> list[Json]:
    """Return the Sandboxes with the label of a pool, by name."""
    label = name_hash(pool_name)
    return [
        one
        for one in world.plane.store.list(SANDBOXES, NS)
        if (one["metadata"].get("labels") or {}).get(WARM_POOL) == label
    ]


def names_of(objects: list[Json]) -> list[str]:
    """Return the names of objects."""
    return [one["metadata"]["name"] for one in objects]


def ids(objects: list[Json]) -> set[str]:
    """Return the uids of objects."""
    return {one["metadata"]["uid"] for one in objects}


def pool_status(world: World, name: str = "p") -> Json:
    """Return the stored status of a pool."""
    found: Json = world.plane.store.get(POOLS, NS, name).get("status", {})
    return found


def pool_events(world: World) -> list[tuple[str, str, str]]:
    """Return type, reason and note of the Events about pools, in the order of time."""
    return [
        (one["type"], one["reason"], one.get("note", ""))
        for one in sorted(world.events(), key=lambda one: str(one["eventTime"]))
        if one["regarding"]["kind"] == "SandboxWarmPool"
    ]


def start(world: World, name: str, *, ready: bool = True) -> None:
    """Let a Pod run, as a kubelet does, without waiting for anybody."""
    status = running_status(ready=ready)
    world.plane.store.patch("pods", NS, name, {"status": status}, subresource="status")


async def run_all(world: World, pool_name: str = "p") -> None:
    """Take the Pods of all members of a pool to Ready and let the writes follow."""
    for name in names_of(members(world, pool_name)):
        if world.find("pods", name) is not None:
            start(world, name)
    await rest(world)


async def fill(
    world: World, body: Json | None = None, *, template_body: Json | None = None
) -> None:
    """Create a template and a pool, let it fill with Ready members, and count requests anew."""
    made = template_body or template()
    if world.find(TEMPLATES, made["metadata"]["name"]) is None:
        await world.create(made)
    wanted = body or pool()
    await world.create(wanted)
    await rest(world)
    await run_all(world, wanted["metadata"]["name"])
    world.forget_requests()


async def change_pool(world: World, spec: Json, name: str = "p") -> None:
    """Change the spec of a pool as a user."""
    await world.patch(POOLS, name, {"spec": spec})


async def change_template(world: World, spec: Json, name: str = "t") -> None:
    """Change the spec of a template as a user."""
    await world.patch(TEMPLATES, name, {"spec": spec})


def orphan(
    name: str,
    *,
    template_body: Json | None = None,
    pool_name: str = "p",
    owner: Json | None = None,
    namespace: str = NS,
) -> Json:
    """Return a Sandbox as the pool makes them, with another owner or none at all."""
    view = view_of_pool(msgspec.convert(pool(pool_name), SandboxWarmPool))
    source = msgspec.json.encode(template_body or template())
    blueprint = view_of_template(msgspec.json.decode(source, type=SandboxTemplate))
    made: Json = msgspec.json.decode(
        msgspec.json.encode(build_member(view, blueprint, eviction=True))
    )
    metadata = made["metadata"]
    del metadata["generateName"], metadata["ownerReferences"]
    metadata.update(name=name, namespace=namespace)
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return made
