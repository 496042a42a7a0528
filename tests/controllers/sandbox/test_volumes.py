"""The PersistentVolumeClaims of a Sandbox: made once, kept, adopted or refused."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.support.clock import FakeClock
from tests.support.refusals import BY_SCHEMA
from tests.support.suspension import resume, suspend
from tests.support.volumes import ADOPTABLE, VOLUME_SPEC, volume, volume_claim
from tests.support.world import (
    HASH_LABEL,
    NS,
    World,
    condition,
    controlled_by,
    open_world,
    sandbox,
    tracking,
)

Json = dict[str, Any]


def with_claims(*templates: Json, **spec: Any) -> Json:
    """Return a Sandbox with these claim templates."""
    return sandbox(spec={"volumeClaimTemplates": list(templates), **spec})


def claim_of(world: World, name: str = "data-sb-1") -> Json:
    """Return a claim, which must be there."""
    found = world.find("persistentvolumeclaims", name)
    assert found is not None
    return found


def asked_of_claims(world: World) -> Json:
    """Return the requests about claims, without the list that begins the watch."""
    return {
        what: n
        for what, n in world.asked().items()
        if "persistentvolumeclaims" in what and not what.startswith("list")
    }


@pytest.mark.case(20, 21, 28, 107)
async def test_each_template_makes_a_claim_and_a_volume() -> None:
    """Case 107: a claim has its template's metadata, but the tracking label is always our own.

    It is controlled by the Sandbox (20), and its volume takes the place of one of its name (21).
    """
    async with open_world() as world:
        body = with_claims(
            volume(labels={"a": "1", HASH_LABEL: "x"}, annotations={"b": "2"}),
            volume("cache"),
        )
        body["spec"]["podTemplate"]["spec"]["volumes"] = [
            {"name": "data", "emptyDir": {}},
            {"name": "cfg", "configMap": {"name": "cfg"}},
        ]
        made = await world.create(body)
        claim = claim_of(world)
        assert claim["metadata"]["labels"] == {"a": "1", **tracking()}
        assert claim["metadata"]["annotations"] == {"b": "2"}
        assert claim["metadata"]["ownerReferences"] == [controlled_by(made)]
        assert claim["spec"]["resources"] == VOLUME_SPEC["resources"]
        assert claim_of(world, "cache-sb-1")["metadata"]["labels"] == tracking()
        *volumes, token = world.pod()["spec"]["volumes"]
        assert token["name"].startswith("kube-api-access-")
        assert [volume["name"] for volume in volumes] == ["cfg", "data", "cache"]
        assert volumes[1]["persistentVolumeClaim"] == {"claimName": "data-sb-1"}
        assert asked_of_claims(world) == {"create persistentvolumeclaims": 2}
        # A Pod that came first would wait for its volumes.
        assert list(world.writes()) == ["create persistentvolumeclaims", "create pods"]


@pytest.mark.case(101)
async def test_an_own_claim_is_left_as_it_is() -> None:
    """Case 101: once made a claim is never repaired, not even its labels, and never asked about."""
    async with open_world() as world:
        await world.ready_sandbox(with_claims(volume(labels={"a": "1"})))
        world.forget_requests()
        edit = {"metadata": {"labels": {"a": "9", HASH_LABEL: None}}}
        await world.patch("persistentvolumeclaims", "data-sb-1", edit)
        edited = claim_of(world)
        await world.patch("sandboxes", "sb-1", {"spec": {"shutdownPolicy": "Delete"}})
        assert claim_of(world) == edited
        assert not asked_of_claims(world)


@pytest.mark.case(101)
async def test_a_claim_that_was_there_before_the_controller_is_found_by_its_watch() -> None:
    """Case 101: a controller that starts over a running Sandbox asks nothing about its claims."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        async with open_world(plane=plane) as world:
            await world.ready_sandbox(with_claims(volume()))
            before = claim_of(world)
            plane.audit.reset()
        async with open_world(plane=plane) as world:
            assert all(what.startswith("list") for what in world.asked())
            await world.patch("sandboxes", "sb-1", {"spec": {"shutdownPolicy": "Delete"}})
            assert claim_of(world) == before
            assert not asked_of_claims(world)
            assert condition(world.get(), "Ready")["observedGeneration"] == 2


@pytest.mark.case(102)
@pytest.mark.parametrize("kind", ["StatefulSet", "Sandbox"])
async def test_no_pod_is_made_on_the_claim_of_another_owner(kind: str) -> None:
    """Case 102: the claim stays as it is, Ready says why, and no Pod mounts it.

    Better than the reference controller, whose Pod runs on another's disk.
    """
    async with open_world() as world:
        owner = world.foreign_owner(kind, "db")
        world.plane.store.create(volume_claim(labels=ADOPTABLE, owners=(owner,)))
        before = claim_of(world)
        await world.create(with_claims(volume(), volume("own"), service=True))
        await world.advance(60.0)
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "ReconcilerError")
        assert ready["message"] == (
            f'Error seen: PVC "data-sb-1" is owned by {kind}/db (UID: {owner["uid"]}), '
            'not by sandbox "sb-1"'
        )
        assert condition(world.get(), "Suspended")["reason"] == "NotSuspended"
        assert world.find("pods") is None
        assert world.find("services") is not None
        assert claim_of(world) == before
        assert not asked_of_claims(world)


@pytest.mark.case(102)
async def test_once_the_claim_of_another_owner_is_gone_the_pod_is_made() -> None:
    """Case 102: with a claim of the Sandbox's own."""
    async with open_world() as world:
        world.plane.store.create(volume_claim(owners=(world.foreign_owner(),)))
        await world.create(with_claims(volume()))
        await world.advance(60.0)
        assert world.find("pods") is None
        claim = {"metadata": {"finalizers": None}}
        world.plane.store.patch("persistentvolumeclaims", NS, "data-sb-1", claim)
        await world.delete("persistentvolumeclaims", "data-sb-1")
        await world.run_pod()
        assert claim_of(world)["metadata"]["ownerReferences"][0]["name"] == "sb-1"
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.case(102)
async def test_a_claim_that_is_given_to_the_sandbox_has_its_pod_made_at_once() -> None:
    """Case 102: by who owned it, or by an administrator; no backoff is waited for."""
    async with open_world() as world:
        world.plane.store.create(volume_claim(owners=(world.foreign_owner(),)))
        made = await world.create(with_claims(volume()))
        await world.advance(60.0)
        assert world.find("pods") is None
        given = {"metadata": {"ownerReferences": [controlled_by(made)]}}
        await world.patch("persistentvolumeclaims", "data-sb-1", given)
        assert world.find("pods") is not None


@pytest.mark.case(102)
async def test_a_pod_that_runs_is_kept_when_a_claim_is_no_longer_the_sandboxs() -> None:
    """Case 102: it is reported as before; after a suspension no other is made."""
    async with open_world() as world:
        await world.ready_sandbox(with_claims(volume()))
        owner = world.foreign_owner()
        taken = {"metadata": {"ownerReferences": [owner]}}
        await world.patch("persistentvolumeclaims", "data-sb-1", taken)
        await world.run_pod(ips=("10.244.0.9",))
        assert world.get()["status"]["podIPs"] == ["10.244.0.9"]
        await suspend(world)
        await world.delete("pods", "sb-1")
        assert condition(world.get(), "Suspended")["status"] == "True"
        await resume(world)
        await world.advance(60.0)
        assert world.find("pods") is None


@pytest.mark.case(103, 104)
@pytest.mark.parametrize("labels", [ADOPTABLE, tracking()])
async def test_an_unowned_claim_with_leave_is_adopted_by_its_reference_alone(
    labels: dict[str, str],
) -> None:
    """Case 103: the reference is added to those it has; no label is, the spec is not compared.

    The tracking label alone gives leave as well (104).
    """
    async with open_world() as world:
        other = {**world.foreign_owner("Backup", "b"), "controller": False}
        world.plane.store.create(volume_claim(labels=labels, owners=(other,)))
        made = await world.ready_sandbox(with_claims(volume(labels={"a": "1"})))
        claim = claim_of(world)
        assert claim["metadata"]["labels"] == labels
        assert claim["spec"]["volumeName"] == "precious"
        own = next(one for one in claim["metadata"]["ownerReferences"] if one["kind"] == "Sandbox")
        assert own == controlled_by(made)
        kinds = [one["kind"] for one in claim["metadata"]["ownerReferences"]]
        assert kinds == ["Backup", "Sandbox"]
        assert asked_of_claims(world) == {"patch persistentvolumeclaims": 1}
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.case(103)
async def test_a_failed_adoption_of_a_claim_names_its_step_and_is_repeated() -> None:
    """Case 103: an error of the patch shows in Ready with what was tried."""
    async with open_world() as world:
        world.plane.store.create(volume_claim(labels=ADOPTABLE))
        world.plane.fail_next("patch", "persistentvolumeclaims", 500)
        await world.create(with_claims(volume()))
        ready = condition(world.get(), "Ready")
        assert ready["message"].startswith("Error seen: failed to patch PVC with owner reference: ")
        await world.advance(1.0)
        assert claim_of(world)["metadata"]["ownerReferences"][0]["name"] == "sb-1"
        assert condition(world.get(), "Ready")["reason"] == "DependenciesNotReady"


@pytest.mark.case(105)
@pytest.mark.parametrize(
    "labels", [None, {"agents.x-k8s.io/adoptable": "yes"}, {HASH_LABEL: "00000000"}]
)
async def test_an_unowned_claim_without_leave_is_refused(labels: dict[str, str] | None) -> None:
    """Case 105: without a label that authorises it the claim gets no reference."""
    async with open_world() as world:
        world.plane.store.create(volume_claim(labels=labels))
        before = claim_of(world)
        await world.create(with_claims(volume()))
        ready = condition(world.get(), "Ready")
        assert ready["reason"] == "ReconcilerError"
        assert ready["message"] == (
            'Error seen: cannot adopt unowned PVC "data-sb-1": missing required pool authorization '
            'label ("agents.x-k8s.io/adoptable") or sandbox tracking label '
            '("agents.x-k8s.io/sandbox-name-hash")'
        )
        assert claim_of(world) == before
        assert not asked_of_claims(world)


@pytest.mark.case(106)
async def test_the_first_template_that_fails_ends_the_claims_of_the_reconcile() -> None:
    """Case 106: templates are taken in order; behind a failure none is tried in this reconcile.

    Only the backoff brings it: claims wake nobody.
    """
    async with open_world() as world:
        world.plane.fail_next("create", "persistentvolumeclaims", 500)
        await world.create(with_claims(volume("first"), volume("second")))
        ready = condition(world.get(), "Ready")
        assert ready["reason"] == "ReconcilerError"
        assert ready["message"].startswith("Error seen: ")
        assert world.find("persistentvolumeclaims", "first-sb-1") is None
        assert world.find("persistentvolumeclaims", "second-sb-1") is None
        assert world.find("pods") is None
        await world.advance(0.005)
        assert claim_of(world, "first-sb-1")
        assert claim_of(world, "second-sb-1")
        await world.run_pod()
        assert condition(world.get(), "Ready")["status"] == "True"
        assert asked_of_claims(world) == {"create persistentvolumeclaims": 3}


@pytest.mark.case(106)
async def test_a_claim_the_server_finds_invalid_is_final_until_the_spec_changes() -> None:
    """Case 106: InvalidConfiguration (changes, v1.0.4): shown, no Pod made, no retry."""
    async with open_world() as world:
        world.plane.fail_next("create", "persistentvolumeclaims", 422, body=BY_SCHEMA)
        await world.create(with_claims(volume()))
        await world.advance(1.0)
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "InvalidConfiguration")
        assert world.find("pods") is None
        world.forget_requests()
        await world.advance(30.0)
        assert not world.asked()


@pytest.mark.case(20)
async def test_a_claim_made_behind_the_watch_is_looked_at_once() -> None:
    """Case 20: a create that collides is followed by one GET, and the claim judged like any."""
    async with open_world() as world:
        made = await world.ready_sandbox(with_claims(volume()))
        world.forget_requests()
        second = with_claims(volume())
        second["metadata"]["name"] = "sb-2"
        theirs = volume_claim("data-sb-2", labels=ADOPTABLE)
        world.meanwhile(
            "create", "persistentvolumeclaims", lambda: world.plane.store.create(theirs)
        )
        await world.create(second)
        claim = claim_of(world, "data-sb-2")
        assert claim["metadata"]["ownerReferences"][0]["name"] == "sb-2"
        assert asked_of_claims(world) == {
            "create persistentvolumeclaims": 1,
            "get persistentvolumeclaims": 1,
            "patch persistentvolumeclaims": 1,
        }
        assert made["metadata"]["name"] == "sb-1"


@pytest.mark.case(102)
@pytest.mark.parametrize("is_slow", [True, False])
async def test_no_pod_is_made_while_its_claims_cannot_be_listed(*, is_slow: bool) -> None:
    """Case 102: Ready says so; a claim of the name might be somebody else's.

    Nothing is asked about single claims, and all is well once the list succeeds.
    """
    async with open_world() as world:
        if is_slow:
            held = world.plane.hold("list", "persistentvolumeclaims", times=1)
        else:
            world.plane.fail_next("list", "persistentvolumeclaims", 403, times=4)
        world.plane.store.create(with_claims(volume()))
        await world.until(lambda: world.requests("list", "persistentvolumeclaims"))
        # A list that takes a little is waited for; one that fails is not.
        assert world.find("pods") is None
        await world.clock.advance(5.0)
        await world.until(lambda: world.get().get("status"))
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "ReconcilerError")
        said = "their list is not complete yet" if is_slow else "list persistentvolumeclaims: 403"
        assert ready["message"].startswith(f"Error seen: failed to get PVC: {said}")
        assert world.find("pods") is None
        assert not asked_of_claims(world)
        if is_slow:
            held.release()
        for _ in range(20):
            await world.clock.advance(5.0)
            if world.find("persistentvolumeclaims", "data-sb-1"):
                break
        await world.until(lambda: world.find("pods"))
        await world.run_pod()
        await world.advance(5.0)
        assert condition(world.get(), "Ready")["status"] == "True"
        assert asked_of_claims(world) == {"create persistentvolumeclaims": 1}
