"""A version that is not known is never taken for no guard: what is decided on is fetched first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from filters import EventType
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.common import Shared
from lean_sandbox.controllers.sandbox.requests import SandboxRequests
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import Conflict
from lean_sandbox.kube.transport import Transport
from lean_sandbox.local.request import Target
from lean_sandbox.model.names import ADOPTABLE_LABEL
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import build_caches
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_kind
from tests.kube.server import Answer, Request, reply, serve
from tests.support.backup import Backup
from tests.support.builders import claim
from tests.support.clock import FakeClock
from tests.support.expiry import at
from tests.support.extensions import failed, get_claim, open_claims, ready_of
from tests.support.names import CLAIMS, POOLS, SANDBOXES
from tests.support.world import NS, World, condition, open_world, pod_body, sandbox, tracking
from tests.watch.objects import owned_by
from tests.watch.objects import sandbox as stored

Json = dict[str, Any]
GONE = {"kind": "Status", "reason": "NotFound", "code": 404}


def ends(seconds: float) -> Json:
    """Return when an object is to end and to be deleted."""
    return {"shutdownTime": at(seconds), "shutdownPolicy": "Delete"}


@asynccontextmanager
async def half_listed(world: World, plural: str, kind: str) -> AsyncIterator[None]:
    """Restore the store as it is; in the block, only the first object of a kind has been listed."""
    backup = Backup(world.plane)
    for one in world.plane.store.list(kind, NS):
        noise = {"metadata": {"annotations": {"noise": "x"}}}
        world.plane.store.patch(kind, NS, one["metadata"]["name"], noise)
    await world.pass_time(1.0)

    def is_of_next_page(target: Target) -> bool:
        return "continue" in target.query

    held = world.plane.hold("list", plural, answers=False, match=is_of_next_page)
    backup.restore(world.plane)
    await world.pass_time(2.0)
    assert held.waiting, "the list has not come to its second page"
    world.forget_requests()
    yield
    held.release()
    await world.recover()
    await world.advance(10.0)


class Refusal:
    """Refuses all deletions of a kind, or other requests, until it ends."""

    def __init__(self, world: World, plural: str, verb: str = "delete") -> None:
        """Begin at once."""
        self.is_over = False
        world.plane.fail_next(verb, plural, 503, 1_000_000, match=self._applies)

    def _applies(self, _target: Target) -> bool:
        return not self.is_over


@pytest.mark.parametrize("is_kept", [True, False])
async def test_an_expired_claim_is_deleted_unless_its_user_keeps_it(*, is_kept: bool) -> None:
    """The time was moved while the list of a restored store had not reached the claim."""
    async with open_claims("m1", "m2", page_size=1) as world:
        await world.create(claim("a"))
        await world.create(claim("c", lifecycle=ends(10.0)))
        refusal = Refusal(world, "sandboxclaims")
        await world.advance(10.0)
        assert ready_of(world)[1] == "ClaimExpired"
        async with half_listed(world, "sandboxclaims", CLAIMS):
            if is_kept:
                later = {"spec": {"lifecycle": {"shutdownTime": at(36_000.0)}}}
                world.plane.store.patch(CLAIMS, NS, "c", later)
            refusal.is_over = True
            await world.pass_time(20.0)
            assert (world.find(CLAIMS, "c") is not None) is is_kept


@pytest.mark.parametrize("is_kept", [True, False])
async def test_an_expired_sandbox_is_deleted_unless_its_user_keeps_it(*, is_kept: bool) -> None:
    """As a claim is."""
    settings = Settings(
        sandbox_status_window=1.0, sandbox_status_step_window=0.0, page_size=1, extensions=False
    )
    async with open_world(settings) as world:
        await world.ready_sandbox(sandbox("a"))
        await world.ready_sandbox(sandbox("s", spec=ends(10.0)))
        refusal = Refusal(world, "sandboxes")
        await world.advance(12.0)
        assert condition(world.get("s"), "Ready")["reason"] == "SandboxExpired"
        async with half_listed(world, "sandboxes", SANDBOXES):
            if is_kept:
                later = {"spec": {"shutdownTime": at(36_000.0)}}
                world.plane.store.patch(SANDBOXES, NS, "s", later)
            refusal.is_over = True
            await world.pass_time(20.0)
            assert (world.find("sandboxes", "s") is not None) is is_kept


@pytest.mark.parametrize("is_taken", [True, False])
async def test_a_surplus_member_is_deleted_unless_somebody_takes_it(*, is_taken: bool) -> None:
    """Another process bound it while the list of a restored store had not reached it."""
    async with open_claims("m1", "m2", "m3", ready=False, page_size=1) as world:
        for name in ("m1", "m2"):
            await world.run_pod(name)
        await world.advance(2.0)
        refusal = Refusal(world, "sandboxes")
        await world.patch(POOLS, "pool", {"spec": {"replicas": 2}})
        await world.advance(1.0)
        async with half_listed(world, "sandboxes", SANDBOXES):
            if is_taken:
                owners = {"metadata": {"ownerReferences": [world.foreign_owner()]}}
                world.plane.store.patch(SANDBOXES, NS, "m3", owners)
            refusal.is_over = True
            await world.pass_time(20.0)
            assert (world.find("sandboxes", "m3") is not None) is is_taken


@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("plural", ["services", "pods"])
async def test_what_has_no_owner_is_adopted_unless_another_adopts_it(
    plural: str, *, is_taken: bool
) -> None:
    """A server takes a merge patch of either whatever version 0 it names."""
    settings = Settings(sandbox_status_window=1.0, sandbox_status_step_window=0.0, page_size=1)
    async with open_world(settings) as world:
        await world.ready_sandbox(sandbox("a", spec={"service": True}))
        labels = {ADOPTABLE_LABEL: "true", **tracking("s")}
        bodies = {
            "services": {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "s", "namespace": NS, "labels": labels},
                "spec": {"clusterIP": "None"},
            },
            "pods": pod_body("s", labels=labels),
        }
        await world.create(bodies[plural])
        refusal = Refusal(world, plural, "patch")
        metadata = {"annotations": {"agents.x-k8s.io/pod-name": "s"}}
        await world.create(sandbox("s", spec={"service": True}, metadata=metadata))
        await world.advance(1.0)
        async with half_listed(world, plural, plural):
            if is_taken:
                owners = {"metadata": {"ownerReferences": [world.foreign_owner()]}}
                world.plane.store.patch(plural, NS, "s", owners)
            refusal.is_over = True
            await world.pass_time(20.0)
            held = world.plane.store.get(plural, NS, "s")
            (owner,) = held["metadata"]["ownerReferences"]
            assert owner["kind"] == ("Deployment" if is_taken else "Sandbox")


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_status_of_an_expired_claim_is_guarded(*, is_kept: bool) -> None:
    """It says so at once, by the version that a fetch has shown, or not at all."""
    async with open_claims("m1", "m2", page_size=1) as world:
        await world.create(claim("a"))
        await world.create(claim("c", lifecycle=ends(10.0)))
        async with half_listed(world, "sandboxclaims", CLAIMS):
            if is_kept:
                later = {"spec": {"lifecycle": {"shutdownTime": at(36_000.0)}}}
                world.plane.store.patch(CLAIMS, NS, "c", later)
            await world.pass_time(8.0)
            told = get_claim(world) if is_kept else None
            assert told is None or condition(told, "Ready")["reason"] == "DependenciesReady"
            assert (world.find(CLAIMS, "c") is not None) is is_kept
            # Until the list goes on, a deletion may be sent twice.
            assert {one.split()[0] for one in failed(world)} <= {"404"}


# -- a server whose versions are not numbers -------------------------------------------------------


def opaque(version: str, **changes: Any) -> Json:
    """Return a Sandbox as such a server sends it."""
    made = stored("s", 1, **changes)
    made["metadata"]["resourceVersion"] = version
    return made


@asynccontextmanager
async def facing(now: Json | None) -> AsyncIterator[tuple[ObjectWriter, list[Request]]]:
    """Run a server that has one Sandbox, or none any more, and accepts every write."""

    def script(request: Request) -> Answer:
        return reply(404, GONE) if now is None else reply(200, now)

    async with serve(script) as server:
        transport = Transport(Connection(server.url))
        yield ObjectWriter(Client(transport)), server.requests
        await transport.aclose()


def seen(body: Json) -> tuple[Cache[SandboxEntry], SandboxEntry]:
    """Return a cache that a watch has shown one Sandbox."""
    cache: Cache[SandboxEntry] = Cache(sandbox_kind())
    item = msgspec.json.decode(msgspec.json.encode(body), type=cache.kind.item_type)
    cache.full(EventType.ADDED, item, initial=True)
    (entry,) = cache
    assert entry.version == 0
    return cache, entry


async def test_a_version_that_is_no_number_guards_as_it_is_written() -> None:
    """A fetch shows that nothing has changed, and at which version."""
    cache, entry = seen(opaque("v-1"))
    async with facing(opaque("v-2")) as (writer, requests):
        assert await writer.delete(cache, entry, is_guarded=True)
    assert [one.method for one in requests] == ["GET", "DELETE"]
    assert requests[1].json["preconditions"] == {"uid": "uid-of-s", "resourceVersion": "v-2"}


@pytest.mark.parametrize(
    "now",
    [
        opaque("v-2", generation=2),
        opaque("v-2", uid="another"),
        opaque("v-2", ready="False"),
        opaque("v-2", deletionTimestamp="2026-01-02T03:04:05Z"),
        opaque("v-2", ownerReferences=owned_by("somebody")),
        opaque(""),
        opaque("0"),
    ],
)
async def test_nothing_is_written_about_what_has_changed_or_has_no_version(now: Json) -> None:
    """Spec, status, owner, deletion: whatever the decision may have been made on."""
    cache, entry = seen(opaque("v-1"))
    async with facing(now) as (writer, requests):
        with pytest.raises(Conflict):
            await writer.delete(cache, entry, is_guarded=True)
    assert [one.method for one in requests] == ["GET"]


async def test_nothing_is_written_about_what_is_gone() -> None:
    """That it is gone was what the deletion was for."""
    cache, entry = seen(opaque("v-1"))
    async with facing(None) as (writer, requests):
        assert not await writer.delete(cache, entry, is_guarded=True)
    assert [one.method for one in requests] == ["GET"]
    assert entry.key not in cache


async def test_a_known_version_costs_no_fetch() -> None:
    """The usual case: one request, guarded by what the cache says."""
    cache: Cache[SandboxEntry] = Cache(sandbox_kind())
    item = msgspec.json.decode(msgspec.json.encode(stored("s", 7)), type=cache.kind.item_type)
    cache.full(EventType.ADDED, item, initial=True)
    (entry,) = cache
    async with facing(stored("s", 7)) as (writer, requests):
        assert await writer.delete(cache, entry, is_guarded=True)
    (request,) = requests
    assert request.json["preconditions"] == {"uid": "uid-of-s", "resourceVersion": "7"}


async def test_the_response_to_a_create_is_not_taken_for_the_newest_state() -> None:
    """Two versions that are not known are not the same version."""
    caches = build_caches()
    made = opaque("v-1")
    item = msgspec.json.decode(msgspec.json.encode(made), type=Sandbox)
    async with facing(opaque("v-2", generation=2)) as (writer, requests):
        shared = SimpleNamespace(client=writer.client, caches=caches, clock=FakeClock())
        sandboxes = SandboxRequests(cast("Shared", shared))
        caches.sandboxes.full(EventType.ADDED, item, initial=True)
        sandboxes.keep_created(item)
        found = await sandboxes.get_sandbox(Key(NS, "s"))
    assert found is not None
    assert found.metadata.generation == 2
    assert len(requests) == 1
