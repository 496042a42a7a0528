"""Worlds with the controllers of templates, pools and claims, and what tests do and see there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.claim.controller import ClaimController
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.request import AuditEntry
from lean_sandbox.model.names import name_hash
from lean_sandbox.runtime.tracing import Tracing
from lean_sandbox.watch.kind import Key
from tests.support import stored
from tests.support.builders import member, placed, pool, template
from tests.support.clock import FakeClock
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES, WARM_POOL
from tests.support.world import (
    CONTROLLER,
    NS,
    World,
    condition,
    open_world,
    running_status,
    write_pod_status,
)

Json = dict[str, Any]

BIND = ["patch sandboxes", "patch pods", "patch sandboxclaims/status"]
"""What stands between a claim and its client on the warm path."""
_KINDS = {
    "sandboxclaims": CLAIMS,
    "sandboxtemplates": TEMPLATES,
    "sandboxwarmpools": POOLS,
    "sandboxes": SANDBOXES,
}
# Every write that follows from others has been made by then.
_REST_S = 3.0


def settings(**more: Any) -> Settings:
    """Return settings, with extensions by default, and windows that no test waits for."""
    windows = {"sandbox_status_window": 1.0, "sandbox_status_step_window": 0.0}
    return Settings(**{"extensions": True, **windows, **more})


def add_member(
    plane: ControlPlane,
    name: str,
    *,
    pool: str = "pool",
    change: Callable[[Json], None] | None = None,
) -> Json:
    """Create a member as the pool controller does, but with a name of the test's choice."""
    owner = plane.store.get(POOLS, NS, pool)
    source = plane.store.get(TEMPLATES, NS, owner["spec"]["sandboxTemplateRef"]["name"])
    body = member(owner, source, name)
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
    one_time: bool = False,
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
        settings(**more),
        plane=plane,
        clock=clock,
        prepare=furnishing,
        tracing=tracing,
        one_time=one_time,
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
    given = settings(**more)
    clock = clock or FakeClock()
    if plane is not None:
        async with open_world(
            given, plane=plane, clock=clock, before=before, prepare=prepare
        ) as world:
            yield world
        return
    async with (
        ControlPlane(LocalSettings(), clock=clock) as fresh,
        open_world(given, plane=fresh, clock=clock, before=before, prepare=prepare) as world,
    ):
        yield world


# -- pools ---------------------------------------------------------------------------------------


async def rest(world: World, seconds: float = _REST_S) -> None:
    """Let time pass until the controllers have nothing more to write."""
    await world.advance(seconds)


def refuse_to_claims(world: World, *refused: Json) -> None:
    """Note of members what a claim notes if the server refuses to hand them over."""
    claims = next(it for it in world.whole.controllers if isinstance(it, ClaimController))
    for one in refused:
        entry = world.whole.caches.sandboxes.get(Key(NS, one["metadata"]["name"]))
        assert entry is not None
        claims.warm.refuse(replace(entry, uid=one["metadata"]["uid"]))
    world.whole.wakes.pool(Key(NS, "pool"))


def members(world: World, pool_name: str = "pool") -> list[Json]:
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


def pool_status(world: World, name: str = "pool") -> Json:
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
    write_pod_status(world.plane, name, running_status(ready=ready))


async def run_all(world: World, pool_name: str = "pool") -> None:
    """Take the Pods of all members of a pool to Ready and let the writes follow."""
    for name in names_of(members(world, pool_name)):
        if world.find("pods", name) is not None:
            start(world, name)
    await rest(world)


async def fill(
    world: World, body: Json | None = None, *, template_body: Json | None = None
) -> None:
    """Create a template and a pool, let it fill with Ready members, and count requests anew."""
    made = template_body or placed()
    if world.find(TEMPLATES, made["metadata"]["name"]) is None:
        await world.create(made)
    wanted = body or pool(replicas=2)
    await world.create(wanted)
    await rest(world)
    await run_all(world, wanted["metadata"]["name"])
    world.forget_requests()


async def change_pool(world: World, spec: Json, name: str = "pool") -> None:
    """Change the spec of a pool as a user."""
    await world.patch(POOLS, name, {"spec": spec})


async def change_template(world: World, spec: Json, name: str = "tpl") -> None:
    """Change the spec of a template as a user."""
    await world.patch(TEMPLATES, name, {"spec": spec})


# -- what clients see ------------------------------------------------------------------------------


def get_object(world: World, resource: str, name: str) -> Json:
    """Return an object of the extensions, or a Sandbox."""
    return world.plane.store.get(_KINDS.get(resource, resource), NS, name)


def get_claim(world: World, name: str = "c") -> Json:
    """Return a claim."""
    return get_object(world, "sandboxclaims", name)


def bound_name(world: World, name: str = "c") -> str:
    """Return the Sandbox that a claim's status names; empty for none."""
    return stored.bound_name(get_claim(world, name))


def ready_of(world: World, name: str = "c") -> tuple[str, str, str]:
    """Return status, reason and message of a claim's Ready."""
    ready = condition(get_claim(world, name), "Ready")
    return ready["status"], ready["reason"], ready["message"]


def is_ready(world: World, name: str = "c") -> bool:
    """Tell whether a claim is Ready."""
    return stored.is_ready(get_claim(world, name))


def member_names(world: World, pool: str = "pool") -> list[str]:
    """Return the Sandboxes that a pool owns."""
    return sorted(
        one["metadata"]["name"]
        for one in world.plane.store.list(_KINDS["sandboxes"], NS)
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
    """Return the controller's requests that were refused, a GET that finds nothing included."""
    return [
        f"{entry.code} {entry.what} {entry.name}" for entry in _requests(world) if entry.code >= 400
    ]


def status_codes(world: World) -> list[int]:
    """Return the answers to the controller's patches of the status of claims."""
    sent = world.requests("patch", "sandboxclaims")
    return [one.code for one in sent if one.subresource]


def claim_reconciles(world: World) -> int:
    """Return how many reconciles over claims were made since the start."""
    return world.controller.activity().reconciles["sandboxclaim"]


def failed_claim_reconciles(world: World) -> int:
    """Return how many reconciles over claims failed since the start."""
    return world.controller.activity().errors["sandboxclaim"]


def _requests(world: World) -> list[AuditEntry]:
    return [
        entry
        for entry in world.plane.audit.select(user=CONTROLLER)
        if entry.resource != "events" and entry.verb != "watch"
    ]
