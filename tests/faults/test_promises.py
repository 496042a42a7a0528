"""The history of a control plane tells each broken promise, and takes no honest lag for one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ApiError, Asked
from lean_sandbox.kube.resources import PODS, SANDBOXCLAIMS, path
from lean_sandbox.kube.resources import SANDBOXES as SANDBOX_KIND
from lean_sandbox.local.controlplane import ControlPlane
from tests.faults.history import History
from tests.faults.promises import Promise
from tests.support.builders import claim, pool
from tests.support.clients import cluster_admin, connected, connection_to
from tests.support.clock import FakeClock
from tests.support.names import CLAIMS, SAFE_TO_EVICT, SANDBOXES, WARM_POOL
from tests.support.world import (
    CONTROLLER,
    NS,
    controlled_by,
    pod_body,
    running_status,
    sandbox,
    write_pod_status,
)

Json = dict[str, Any]
AT = "2026-01-02T03:04:05Z"
SB = SANDBOXES, NS, "sb"


class Scene:
    """A control plane whose history is kept, and the controller's credentials."""

    def __init__(self, plane: ControlPlane, controller: Client) -> None:
        """Begin the history."""
        self.plane = plane
        self.controller = controller
        self.history = History(plane)

    def broken(self) -> list[str]:
        """Return the names of the promises that were broken."""
        return [text.partition(":")[0] for text in self.history.violations()]

    async def ready(self, name: str, message: str, *ips: str, generation: int = 1) -> None:
        """Tell Ready of a Sandbox, as the controller does."""
        is_ready = message == "Pod is Ready"
        told = condition(message, ready=is_ready, generation=generation)
        status = {"conditions": [told], "podIPs": list(ips)}
        await self.patch(SANDBOX_KIND, name, {"status": status}, "status")

    async def bind(self, name: str, to: str, *, ready: bool = False) -> None:
        """Tell of a claim that it has a Sandbox."""
        told = condition("", ready=ready)
        status = {"conditions": [told], "sandbox": {"name": to}}
        await self.patch(SANDBOXCLAIMS, name, {"status": status}, "status")

    async def own(self, name: str, owner: Json) -> None:
        """Hand a Sandbox over."""
        await self.patch(SANDBOX_KIND, name, {"metadata": {"ownerReferences": [owner_of(owner)]}})

    async def patch(self, kind: Any, name: str, body: Json, subresource: str = "") -> None:
        """Write as the controller."""
        more: Json = {"subresource": subresource} if subresource else {}
        await self.controller.patch(kind, name, body, bytes, namespace=NS, **more)

    async def watch_pods(self) -> None:
        """Watch from now on, as the controller does that has listed all Pods."""
        version = self.plane.store.version
        target = f"{path(PODS, None)}?watch=1&resourceVersion={version}"
        asked = Asked("watch", PODS.qualified, "")
        async with self.controller.transport.stream(target, headers={}, asked=asked):
            pass

    async def serve(self) -> None:
        """Give the claim ``one`` the Sandbox ``sb``, whose Pod runs and is ready."""
        made = self.plane.store.create(claim("one"))
        owner = self.plane.store.create(sandbox("sb"))
        await self.own("sb", made)
        self.plane.store.create(pod_body("sb", owners=(owner_of(owner),)))
        self.run("sb", "10.0.0.1")

    def run(self, name: str, ip: str, *, ready: bool = True) -> None:
        """Let a Pod run, as its kubelet does."""
        write_pod_status(self.plane, name, running_status(ready=ready, ips=(ip,)))


def condition(message: str, *, ready: bool, generation: int = 1) -> Json:
    """Return a Ready condition."""
    return {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "Told",
        "message": message,
        "lastTransitionTime": AT,
        "observedGeneration": generation,
    }


def owner_of(owner: Json) -> Json:
    """Return the controller reference to an owner."""
    return controlled_by(owner)


@asynccontextmanager
async def served() -> AsyncIterator[Scene]:
    """Start a control plane with a claim that has a Sandbox, which has a Pod, and is Ready."""
    async with scene() as at:
        await at.serve()
        await at.ready("sb", "Pod is Ready", "10.0.0.1")
        yield at


@asynccontextmanager
async def claimed() -> AsyncIterator[Scene]:
    """Start a control plane with the claim ``one``, which owns the Sandbox ``sb``."""
    async with scene() as at:
        made = at.plane.store.create(claim("one"))
        at.plane.store.create(sandbox("sb"))
        await at.own("sb", made)
        yield at


@asynccontextmanager
async def with_pod() -> AsyncIterator[Scene]:
    """Start a control plane with the Sandbox ``sb-1``, which has a Pod that does not run."""
    async with scene() as at:
        made = at.plane.store.create(sandbox())
        at.plane.store.create(pod_body(owners=(owner_of(made),)))
        yield at


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """Start a control plane without a controller."""
    async with ControlPlane(clock=FakeClock()) as plane:
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        plane.store.create(cluster_admin(CONTROLLER))
        async with connected(connection_to(plane, CONTROLLER), clock=FakeClock()) as controller:
            yield Scene(plane, controller)


async def test_a_controller_that_comes_later_is_judged_by_what_was_before_it() -> None:
    """A claim may still name the Sandbox that it had before that controller began, and no other."""
    async with served() as at:
        await at.bind("one", "sb", ready=True)
        at.plane.store.delete(*SB)
        later = f"{CONTROLLER}-later"
        at.plane.store.create(cluster_admin(later, name="later"))
        at.history.users.add(later)
        async with connected(connection_to(at.plane, later), clock=FakeClock()) as at.controller:
            note = {"metadata": {"annotations": {"example.com/noted": "yes"}}}
            await at.patch(SANDBOXCLAIMS, "one", note)
            assert not at.broken()
            await at.bind("one", "never", ready=True)
            assert at.broken() == [Promise.READY_IS_OWNED.name]


async def test_a_sandbox_that_goes_from_claim_to_claim_is_told() -> None:
    """By its owner reference, or because another claim names it."""
    async with claimed() as at:
        assert not at.broken()
        await at.own("sb", at.plane.store.create(claim("two")))
        assert Promise.BOUND_ONCE.name in at.broken()
    async with claimed() as at:
        at.plane.store.create(claim("two"))
        await at.bind("one", "sb")
        assert not at.broken()
        await at.bind("two", "sb")
        assert at.broken() == [Promise.BOUND_ONCE.name]


async def test_a_ready_claim_whose_sandbox_was_never_its_own_is_told() -> None:
    """Before the Sandbox is bound, or with one of another namespace."""
    async with scene() as at:
        made = at.plane.store.create(claim("one"))
        at.plane.store.create(sandbox("sb"))
        at.plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "o"}})
        far = sandbox("far", namespace="o")
        far["metadata"]["ownerReferences"] = [owner_of(made)]
        at.plane.store.create(far)
        await at.bind("one", "far", ready=True)
        assert Promise.READY_IS_OWNED.name in at.broken()


async def test_a_binding_that_is_taken_back_is_told_unless_its_sandbox_goes() -> None:
    """A name once told stays while the Sandbox does, and the Sandbox stays with its claim."""
    async with claimed() as at:
        await at.bind("one", "sb")
        await at.bind("one", "")
        assert at.broken() == [Promise.NEVER_UNDONE.name]
    async with claimed() as at:
        await at.own("sb", at.plane.store.create(pool()))
        assert at.broken() == [Promise.NEVER_UNDONE.name]
    async with claimed() as at:
        await at.bind("one", "sb")
        at.plane.store.delete(SANDBOXES, NS, "sb")
        await at.bind("one", "")
        assert not at.broken()


async def test_a_child_without_an_owner_is_told_and_one_whose_owner_is_gone() -> None:
    """What others made is theirs to own."""
    async with scene() as at:
        made = at.plane.store.create(sandbox())
        await at.controller.create(PODS, pod_body("mine"), bytes, namespace=NS)
        assert set(at.broken()) == {Promise.OWNED.name}
        at.plane.store.delete("pods", NS, "mine", grace_s=0)
        at.plane.store.create(pod_body("theirs"))
        await at.controller.create(
            PODS, pod_body("sb-1", owners=(owner_of(made),)), bytes, namespace=NS
        )
        assert at.broken() == [Promise.OWNED.name]
        # Nothing has let the garbage collector work yet.
        at.plane.store.delete(SANDBOXES, NS, "sb-1")
        assert at.broken() == [Promise.OWNED.name, Promise.CHILDREN_GO.name]
        await at.plane.settled()
        assert at.broken() == [Promise.OWNED.name]


async def test_a_status_that_was_never_true_is_told() -> None:
    """Ready before any Pod was, or at an address that no Pod had."""
    async with with_pod() as at:
        await at.ready("sb-1", "Pod does not exist")
        assert not at.broken()
        await at.ready("sb-1", "Pod is Ready", "10.0.0.1")
        at.run("sb-1", "10.0.0.1")
        assert at.broken() == [Promise.STATUS_IS_TRUE.name]


async def test_a_lagging_view_is_no_fault_and_one_that_goes_back_is() -> None:
    """Ready, not Ready, Ready again: told late it is true, told in another order it is not."""
    async with with_pod() as at:
        for number in (1, 2, 3):
            at.run("sb-1", f"10.0.0.{number}")
        for number in (1, 2, 3):
            await at.ready("sb-1", "Pod is Ready", f"10.0.0.{number}")
            await at.ready("sb-1", "")
        assert not at.broken()
        await at.ready("sb-1", "Pod is Ready", "10.0.0.2")
        assert at.broken() == [Promise.NEVER_UNDONE.name]


async def test_a_claim_repeats_its_sandbox_in_order() -> None:
    """Ready of a claim was Ready of its Sandbox before."""
    async with scene() as at:
        await at.serve()
        await at.bind("one", "sb", ready=True)
        assert at.broken() == [Promise.STATUS_IS_TRUE.name]


async def test_what_the_sandbox_before_has_said_is_no_measure_for_the_next() -> None:
    """A claim that gets another Sandbox is not ready since a time that was true of the first."""
    async with scene() as at:
        made = at.plane.store.create(claim("one"))
        first = at.plane.store.create(sandbox("first"))
        at.plane.store.create(pod_body("first", owners=(owner_of(first),)))
        await at.own("first", made)
        at.run("first", "10.0.0.1")
        await at.ready("first", "")
        await at.bind("one", "first")
        await at.ready("first", "Pod is Ready", "10.0.0.1")
        await at.bind("one", "first", ready=True)
        at.plane.store.delete(SANDBOXES, NS, "first")
        await at.plane.settled()
        second = at.plane.store.create(sandbox("second"))
        at.plane.store.create(pod_body("second", owners=(owner_of(second),)))
        at.run("second", "10.0.0.2")
        await at.own("second", made)
        await at.bind("one", "second")
        assert not at.broken()
        await at.bind("one", "second", ready=True)
        assert at.broken() == [Promise.STATUS_IS_TRUE.name]


async def test_a_claim_that_becomes_ready_with_a_pod_known_to_be_gone_is_told() -> None:
    """Whoever begins to watch when a Pod has gone, is going or is not ready has seen no other."""
    ends: tuple[Callable[[Scene], object], ...] = (
        lambda at: at.plane.store.delete("pods", NS, "sb", grace_s=0),
        lambda at: at.plane.store.delete("pods", NS, "sb", grace_s=30),
        lambda at: at.run("sb", "10.0.0.1", ready=False),
    )
    for end in ends:
        for is_known in (False, True):
            async with served() as at:
                end(at)
                if is_known:
                    await at.watch_pods()
                await at.bind("one", "sb", ready=True)
                assert at.broken() == [Promise.READY_LIVES.name] * is_known


async def test_a_claim_becomes_ready_with_a_pod_of_which_the_end_has_yet_to_be_heard() -> None:
    """Whenever the watch began before that end; and with the Pod that takes its place."""
    async with served() as at:
        await at.watch_pods()
        at.plane.store.delete("pods", NS, "sb", grace_s=0)
        await at.bind("one", "sb", ready=True)
        await at.bind("one", "sb", ready=False)
        at.plane.store.create(pod_body("sb", owners=(owner_of(at.plane.store.get(*SB)),)))
        at.run("sb", "10.0.0.2")
        await at.watch_pods()
        await at.bind("one", "sb", ready=True)
        assert not at.broken()


async def test_a_claim_does_not_become_ready_with_a_pod_whose_end_its_sandbox_has_told() -> None:
    """However old the watch: who tells of an end knows of it. What is Ready already may stay so."""
    async with served() as at:
        await at.bind("one", "sb", ready=True)
        at.plane.store.delete("pods", NS, "sb", grace_s=0)
        await at.ready("sb", "Pod does not exist")
        await at.bind("one", "sb", ready=True)
        assert not at.broken()
        await at.bind("one", "sb", ready=False)
        await at.bind("one", "sb", ready=True)
        assert Promise.READY_LIVES.name in at.broken()


async def test_a_claim_that_is_ready_all_along_keeps_the_time() -> None:
    """It was ready with the Sandbox before, and is with the next, which became so later."""
    async with scene() as at:
        made = at.plane.store.create(claim("one"))
        for number, name in enumerate(("first", "second")):
            owner = at.plane.store.create(sandbox(name))
            at.plane.store.create(pod_body(name, owners=(owner_of(owner),)))
            at.run(name, f"10.0.0.{number}")
            await at.own(name, made)
            since = f"2026-01-02T03:04:1{number}Z"
            told = {**condition("Pod is Ready", ready=True), "lastTransitionTime": since}
            status = {"conditions": [told], "podIPs": [f"10.0.0.{number}"]}
            await at.patch(SANDBOX_KIND, name, {"status": status}, "status")
            kept = {**told, "lastTransitionTime": "2026-01-02T03:04:10Z", "message": name}
            bound = {"conditions": [kept], "sandbox": {"name": name}}
            await at.patch(SANDBOXCLAIMS, "one", {"status": bound}, "status")
            at.plane.store.delete(SANDBOXES, NS, name)
        assert Promise.STATUS_IS_TRUE.name not in at.broken()


async def test_a_status_of_an_older_generation_is_told() -> None:
    """Whoever has seen generation 2 does not speak for generation 1 any more."""
    async with scene() as at:
        at.plane.store.create(sandbox())
        at.plane.store.patch(SANDBOXES, NS, "sb-1", {"spec": {"service": True}})
        await at.ready("sb-1", "", generation=2)
        assert not at.broken()
        await at.ready("sb-1", "", generation=1)
        assert at.broken() == [Promise.NEVER_UNDONE.name]


async def test_a_status_that_meets_a_successor_is_no_fault() -> None:
    """It is written by name, and the first reconcile of the new object puts it right."""
    async with scene() as at:
        at.plane.store.create(sandbox())
        at.plane.store.patch(SANDBOXES, NS, "sb-1", {"spec": {"service": True}})
        at.plane.store.delete(SANDBOXES, NS, "sb-1")
        at.plane.store.create(sandbox())
        await at.ready("sb-1", "", generation=2)
        await at.ready("sb-1", "", generation=1)
        assert not at.broken()


async def test_a_loop_without_backoff_is_told_unless_others_cause_it() -> None:
    """Thirty-one identical requests in ten seconds, and one more for each change by others."""
    async with scene() as at:
        at.plane.store.create(claim("one"))
        for number in range(40):
            at.plane.store.patch(CLAIMS, NS, "one", {"metadata": {"labels": {"n": str(number)}}})
        for _ in range(60):
            with suppress(ApiError):
                await at.controller.get(PODS, "none", bytes, namespace=NS)
        assert not at.broken()
        for _ in range(40):
            with suppress(ApiError):
                await at.controller.get(PODS, "none", bytes, namespace=NS)
        assert at.broken() == [Promise.BACKOFF.name]


@pytest.mark.parametrize(
    "mark", [{"labels": {WARM_POOL: "p"}}, {"annotations": {SAFE_TO_EVICT: "true"}}]
)
async def test_a_claim_that_becomes_ready_while_its_pod_looks_free_is_told(mark: Json) -> None:
    """As the controller left it; but not of what somebody else has put there since."""
    async with served() as at:
        await at.patch(PODS, "sb", {"metadata": mark})
        await at.bind("one", "sb", ready=True)
        assert at.broken() == [Promise.READY_IS_USABLE.name]
    async with served() as at:
        at.plane.store.patch("pods", NS, "sb", {"metadata": mark})
        await at.bind("one", "sb", ready=True)
        assert not at.broken()


async def test_what_the_sandboxs_own_template_says_of_eviction_is_no_sign_of_a_pool() -> None:
    """It lets its Pod be evicted, claimed or not."""
    async with served() as at:
        metadata = {"annotations": {SAFE_TO_EVICT: "true"}}
        template = {"spec": {"podTemplate": {"metadata": metadata}}}
        at.plane.store.patch(SANDBOXES, NS, "sb", template)
        await at.patch(PODS, "sb", {"metadata": metadata})
        await at.bind("one", "sb", ready=True)
        assert not at.broken()
