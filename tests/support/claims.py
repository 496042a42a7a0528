"""Templates, pools with their members, and claims, for tests over the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from lean_sandbox.config.options import Settings
from lean_sandbox.local.audit import AuditEntry
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.model.template import SandboxTemplate, view_of_template
from lean_sandbox.model.warmpool import SandboxWarmPool, build_member, view_of_pool
from lean_sandbox.runtime.tracing import Tracing
from tests.support.clock import FakeClock
from tests.support.world import CONTROLLER, NS, World, condition, open_world

__all__ = [
    "ANNOTATION",
    "BIND",
    "CLAIMS",
    "CLAIM_UID",
    "LAUNCH_TYPE",
    "POOLS",
    "REF_HASH",
    "TEMPLATES",
    "WARM_POOL",
    "add_member",
    "bound_name",
    "claim",
    "events_of",
    "failed",
    "get_claim",
    "get_object",
    "members",
    "open_claims",
    "owner_of",
    "pass_errors",
    "passes",
    "pool",
    "ready_of",
    "run_members",
    "settings",
    "template",
    "writes_in_order",
]

Json = dict[str, Any]

EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"
ANNOTATION = "agents.x-k8s.io/sandbox-name"
CLAIM_UID = "agents.x-k8s.io/claim-uid"
LAUNCH_TYPE = "agents.x-k8s.io/launch-type"
REF_HASH = "agents.x-k8s.io/sandbox-template-ref-hash"
WARM_POOL = "agents.x-k8s.io/warm-pool-sandbox"
# What stands between a claim and its client on the warm path.
BIND = ["patch sandboxes", "patch sandboxclaims/status"]
CLAIMS = "sandboxclaims.extensions.agents.x-k8s.io"
TEMPLATES = "sandboxtemplates.extensions.agents.x-k8s.io"
POOLS = "sandboxwarmpools.extensions.agents.x-k8s.io"
_GROUPS = {
    "sandboxclaims": CLAIMS,
    "sandboxtemplates": TEMPLATES,
    "sandboxwarmpools": POOLS,
    "sandboxes": "sandboxes.agents.x-k8s.io",
}


def settings(**more: Any) -> Settings:
    """Return settings with extensions, and windows that no test waits for."""
    given = {"sandbox_status_window": 1.0, "sandbox_status_step_window": 0.0, **more}
    return Settings(extensions=True, **given)


def template(
    name: str = "tpl",
    *,
    metadata: Json | None = None,
    pod_spec: Json | None = None,
    **spec: Any,
) -> Json:
    """Return a template: one container, changed as asked."""
    pod: Json = {"spec": {"containers": [{"name": "main", "image": "busybox"}], **(pod_spec or {})}}
    if metadata:
        pod["metadata"] = metadata
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxTemplate",
        "metadata": {"name": name, "namespace": NS},
        "spec": {"podTemplate": pod, **spec},
    }


def pool(name: str = "pool", replicas: int = 0, *, template: str = "tpl", **spec: Any) -> Json:
    """Return a pool."""
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxWarmPool",
        "metadata": {"name": name, "namespace": NS},
        "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": template}, **spec},
    }


def claim(
    name: str = "c", *, metadata: Json | None = None, pool: str = "pool", **spec: Any
) -> Json:
    """Return a claim, created at the epoch of the tests."""
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxClaim",
        "metadata": {"name": name, "namespace": NS, **(metadata or {})},
        "spec": {"warmPoolRef": {"name": pool}, **spec},
    }


def add_member(
    plane: ControlPlane,
    name: str,
    *,
    pool: str = "pool",
    change: Callable[[Json], None] | None = None,
) -> Json:
    """Create a member as the pool controller does, but with a name of the test's choice."""
    held = plane.store.get(_GROUPS["sandboxwarmpools"], NS, pool)
    view = view_of_pool(msgspec.convert(held, SandboxWarmPool))
    made = plane.store.get(_GROUPS["sandboxtemplates"], NS, view.template)
    spec = msgspec.json.decode(msgspec.json.encode(made), type=SandboxTemplate)
    body: Json = msgspec.json.decode(
        msgspec.json.encode(build_member(view, view_of_template(spec), eviction=True))
    )
    del body["metadata"]["generateName"]
    body["metadata"]["name"] = name
    if change is not None:
        change(body)
    return plane.store.create(body)


@asynccontextmanager
async def open_claims(
    *names: str,
    ready: bool = True,
    replicas: int | None = None,
    templates: tuple[Json, ...] | None = None,
    pool_spec: Json | None = None,
    plane: ControlPlane | None = None,
    clock: FakeClock | None = None,
    prepare: Callable[[ControlPlane], None] | None = None,
    before: tuple[Json, ...] = (),
    tracing: Tracing | None = None,
    **more: Any,
) -> AsyncIterator[World]:
    """Open a world with template ``tpl``, pool ``pool`` and the members named, all of them Ready.

    The pool wants just these members unless ``replicas`` says otherwise. ``more`` are settings.
    """

    def furnish(plane: ControlPlane) -> None:
        for one in templates if templates is not None else (template(),):
            plane.store.create(one)
        wanted = len(names) if replicas is None else replicas
        plane.store.create(pool(replicas=wanted, **(pool_spec or {})))
        for name in names:
            add_member(plane, name)
        for one in before:
            plane.store.create(one)
        if prepare is not None:
            prepare(plane)

    furnishing = furnish if plane is None else prepare
    async with open_world(
        settings(**more), plane=plane, clock=clock, prepare=furnishing, tracing=tracing
    ) as world:
        if ready and plane is None:
            await run_members(world, *names)
            await world.advance(2.0)
        world.forget_requests()
        yield world


async def run_members(world: World, *names: str, nodes: Json | None = None) -> None:
    """Take the Pods of members to Ready."""
    for number, name in enumerate(names):
        ips = (f"10.244.{number // 250}.{number % 250 + 5}",)
        await world.run_pod(name, ips=ips, node=(nodes or {}).get(name, "node-1"))


# -- what clients see ------------------------------------------------------------------------------


def get_object(world: World, resource: str, name: str) -> Json:
    """Return an object of the extensions, or a Sandbox."""
    return world.plane.store.get(_GROUPS.get(resource, resource), NS, name)


def get_claim(world: World, name: str = "c") -> Json:
    """Return a claim."""
    return get_object(world, "sandboxclaims", name)


def bound_name(world: World, name: str = "c") -> str:
    """Return the Sandbox that a claim's status names; empty for none."""
    held = get_claim(world, name).get("status", {}).get("sandbox", {})
    return str(held.get("name", ""))


def ready_of(world: World, name: str = "c") -> tuple[str, str, str]:
    """Return status, reason and message of a claim's Ready."""
    ready = condition(get_claim(world, name), "Ready")
    return ready["status"], ready["reason"], ready["message"]


def members(world: World, pool: str = "pool") -> list[str]:
    """Return the Sandboxes that a pool owns."""
    return sorted(
        one["metadata"]["name"]
        for one in world.plane.store.list(_GROUPS["sandboxes"], NS)
        if any(
            ref["kind"] == "SandboxWarmPool" and ref["name"] == pool
            for ref in one["metadata"].get("ownerReferences", ())
        )
    )


def owner_of(world: World, name: str) -> str:
    """Return kind and name of a Sandbox's controller, which has to be its only owner."""
    (ref,) = world.get(name)["metadata"]["ownerReferences"]
    assert ref["controller"] is True
    return f"{ref['kind']}/{ref['name']}"


def events_of(world: World, reason: str = "") -> list[tuple[str, str, str]]:
    """Return reason, action and note of the Events about claims."""
    return [
        (one["reason"], one["action"], one["note"])
        for one in world.events()
        if one["regarding"]["kind"] == "SandboxClaim" and reason in ("", one["reason"])
    ]


# -- what the controller did -----------------------------------------------------------------------


def writes_in_order(world: World) -> list[str]:
    """Return the controller's writes, in order and without Events."""
    return [entry.what for entry in _requests(world) if entry.verb not in ("get", "list", "watch")]


def failed(world: World) -> list[str]:
    """Return the controller's requests that were refused, a look that finds nothing included."""
    return [
        f"{entry.code} {entry.what} {entry.name}" for entry in _requests(world) if entry.code >= 400
    ]


def passes(world: World) -> int:
    """Return how many passes over claims were made since the start."""
    return world.controller.activity().passes["sandboxclaim"]


def pass_errors(world: World) -> int:
    """Return how many passes over claims failed since the start."""
    return world.controller.activity().errors["sandboxclaim"]


def _requests(world: World) -> list[AuditEntry]:
    return [
        entry
        for entry in world.plane.audit.select(user=CONTROLLER)
        if entry.resource != "events" and entry.verb != "watch"
    ]
