"""A Service of the name that is not the Sandbox's: adopted with leave, refused without."""

from __future__ import annotations

import pytest

from lean_sandbox.config.options import Settings
from tests.controllers.sandbox.services import (
    ADOPTABLE,
    FQDN,
    ports_of,
    reported,
    service_body,
    service_of,
    want,
    with_ports,
)
from tests.support.world import NS, condition, controlled_by, open_world, sandbox, tracking


@pytest.mark.case(88, 89)
@pytest.mark.parametrize("wish", [False, None])
@pytest.mark.parametrize("labels", [None, ADOPTABLE, tracking()])
async def test_an_unowned_service_is_ignored_unless_one_is_wanted(
    labels: dict[str, str] | None, *, wish: bool | None
) -> None:
    """Case 88: nobody's Service is neither touched nor reported, and is no error (89)."""
    spec = {} if wish is None else {"service": wish}
    async with open_world(before=(service_body(labels=labels),)) as world:
        before = service_of(world)
        world.forget_requests()
        await world.ready_sandbox(sandbox(spec=spec))
        assert service_of(world) == before
        assert reported(world) is None
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready"
        assert not [what for what in world.asked() if "services" in what]


@pytest.mark.case(90)
@pytest.mark.parametrize("wish", [True, None])
async def test_a_foreign_service_blocks_readiness(*, wish: bool | None) -> None:
    """Case 90: a Service of that name with another owner is an error, wanted or not.

    Its end, or a wish of false, sets the Sandbox free at once.
    """
    spec = {} if wish is None else {"service": wish}
    async with open_world() as world:
        owner = world.foreign_owner("Deployment", "x")
        await world.create(service_body(owners=(owner,)))
        before = service_of(world)
        world.forget_requests()
        await world.ready_sandbox(sandbox(spec=spec))
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "ReconcilerError")
        assert ready["message"] == (
            f'Error seen: service "sb-1" is owned by Deployment/x (UID: {owner["uid"]}), '
            'not by sandbox "sb-1"'
        )
        assert reported(world) is None
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]
        assert service_of(world) == before
        assert not [what for what in world.asked() if "services" in what]
        await want(world, service=False)
        assert condition(world.get(), "Ready")["status"] == "True"
        assert service_of(world) == before


@pytest.mark.case(90)
async def test_the_end_of_a_predecessors_service_wakes_the_sandbox() -> None:
    """Case 90: a Service of an older Sandbox of that name blocks only as long as it is there."""
    async with open_world() as world:
        ghost = {**world.foreign_owner("Sandbox", "sb-1"), "apiVersion": "agents.x-k8s.io/v1alpha1"}
        await world.create(service_body(labels=tracking(), owners=(ghost,)))
        await world.ready_sandbox(sandbox(spec={"service": True}))
        assert "is owned by Sandbox/sb-1" in condition(world.get(), "Ready")["message"]
        world.forget_requests()
        await world.delete("services", "sb-1")
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"
        asked = {"get sandboxes": 1, "create services": 1, "patch sandboxes/status": 1}
        assert world.asked() == asked


@pytest.mark.case(91, 92)
@pytest.mark.parametrize("labels", [ADOPTABLE, tracking()])
@pytest.mark.parametrize("is_seen_at_start", [False, True])
async def test_an_unowned_headless_service_with_leave_is_adopted(
    labels: dict[str, str], *, is_seen_at_start: bool
) -> None:
    """Case 91: authorised by its label, it is taken over with selector and ports, by one PATCH.

    What is not the Sandbox's business stays. The tracking label alone authorises as well (92).
    """
    theirs = service_body(labels={**labels, "keep": "me"}, publishNotReadyAddresses=True)
    async with open_world(before=(theirs,) if is_seen_at_start else ()) as world:
        if not is_seen_at_start:
            await world.create(theirs)
        world.forget_requests()
        made = await world.ready_sandbox(with_ports({"containerPort": 8080, "name": "http"}))
        service = service_of(world)
        assert service["metadata"]["labels"] == {**labels, **tracking(), "keep": "me"}
        assert service["metadata"]["ownerReferences"] == [controlled_by(made)]
        assert service["spec"]["selector"] == tracking()
        assert service["spec"]["publishNotReadyAddresses"]
        assert ports_of(world) == [("http", "TCP", 8080, 8080)]
        assert reported(world) == ("sb-1", FQDN)
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"
        asked = {what: n for what, n in world.asked().items() if "services" in what}
        # What the watch alone has told of has no spec yet.
        assert asked["patch services"] == 1
        assert asked.get("get services", 0) == (0 if is_seen_at_start else 1)
        assert not world.conflicts()


@pytest.mark.case(91)
async def test_an_adopted_service_loses_ports_that_the_template_does_not_have() -> None:
    """Case 91: a template without ports leaves the adopted Service without any."""
    async with open_world(before=(service_body(labels=ADOPTABLE),)) as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        assert "ports" not in service_of(world)["spec"]


@pytest.mark.case(91)
async def test_an_adopted_service_keeps_its_other_owners() -> None:
    """Case 91: the Sandbox becomes the one that controls it, beside those it had."""
    async with open_world() as world:
        await world.create(sandbox("another"))
        other = {**controlled_by(world.get("another")), "controller": False}
        await world.create(service_body(labels=ADOPTABLE, owners=(other,)))
        made = await world.ready_sandbox(sandbox(spec={"service": True}))
        kept, ours = service_of(world)["metadata"]["ownerReferences"]
        assert (kept["uid"], ours) == (other["uid"], controlled_by(made))


@pytest.mark.case(91)
async def test_a_service_changed_during_its_adoption_is_looked_at_again() -> None:
    """Case 91: the PATCH is guarded by the version; a loser begins anew and loses nothing."""
    async with open_world(before=(service_body(labels=ADOPTABLE),)) as world:
        touch = {"metadata": {"annotations": {"note": "kept"}}}
        world.meanwhile(
            "patch", "services", lambda: world.plane.store.patch("services", NS, "sb-1", touch)
        )
        await world.ready_sandbox(sandbox(spec={"service": True}))
        await world.advance(1.0)
        service = service_of(world)
        assert service["metadata"]["annotations"] == {"note": "kept"}
        assert service["spec"]["selector"] == tracking()
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"
        assert world.conflicts() == {"409 patch services": 1}


@pytest.mark.case(93)
@pytest.mark.parametrize("is_seen_at_start", [False, True])
async def test_a_service_with_a_real_address_is_never_adopted(*, is_seen_at_start: bool) -> None:
    """Case 93: its address cannot be changed, so it is refused and left as it is.

    One GET is enough: the retries ask nothing.
    """
    theirs = service_body(labels=ADOPTABLE, clusterIP="10.96.0.100")
    async with open_world(before=(theirs,) if is_seen_at_start else ()) as world:
        if not is_seen_at_start:
            await world.create(theirs)
        before = service_of(world)
        world.forget_requests()
        await world.ready_sandbox(sandbox(spec={"service": True}))
        await world.advance(5.0)
        ready = condition(world.get(), "Ready")
        assert ready["reason"] == "ReconcilerError"
        assert ready["message"] == (
            'Error seen: cannot adopt service "sb-1": ClusterIP is "10.96.0.100" '
            '(expected "None", field is immutable)'
        )
        assert service_of(world) == before
        asked = {what: n for what, n in world.asked().items() if "services" in what}
        assert asked == ({} if is_seen_at_start else {"get services": 1})


@pytest.mark.case(94)
async def test_an_unowned_service_without_leave_is_refused_until_it_carries_one() -> None:
    """Case 94: no label, no adoption; the error ends once the label is put on it."""
    async with open_world() as world:
        await world.create(service_body(labels={"agents.x-k8s.io/adoptable": "yes"}))
        before = service_of(world)
        await world.ready_sandbox(sandbox(spec={"service": True}))
        ready = condition(world.get(), "Ready")
        assert ready["reason"] == "ReconcilerError"
        assert ready["message"] == (
            'Error seen: cannot adopt unowned service "sb-1": missing required pool authorization '
            'label ("agents.x-k8s.io/adoptable") or sandbox tracking label '
            '("agents.x-k8s.io/sandbox-name-hash")'
        )
        assert service_of(world) == before
        # At once, not when a backoff has passed.
        await world.patch("services", "sb-1", {"metadata": {"labels": ADOPTABLE}})
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"


@pytest.mark.case(94)
async def test_the_end_of_a_service_in_the_way_is_noticed_at_once() -> None:
    """Case 94: once the Service that was refused is gone, the Sandbox gets its own."""
    async with open_world() as world:
        for owners in ((), (world.foreign_owner(),)):
            await world.create(service_body(owners=owners))
            await world.ready_sandbox(sandbox(spec={"service": True}))
            assert condition(world.get(), "Ready")["reason"] == "ReconcilerError"
            await world.delete("services", "sb-1")
            assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"
            await world.delete("sandboxes", "sb-1")
            await world.delete("pods", "sb-1")


@pytest.mark.case(90, 140)
async def test_a_service_outside_the_filtered_watch_blocks_only_while_it_is_there() -> None:
    """Case 90: where only labelled Services are watched, a create that collides shows the other.

    Nothing tells of its end then; the next try does.
    """
    settings = Settings(sandbox_status_window=1.0, cache_label_selectors=True)
    async with open_world(settings) as world:
        await world.create(service_body(owners=(world.foreign_owner(),)))
        await world.ready_sandbox(sandbox(spec={"service": True}))
        assert "is owned by Deployment/web" in condition(world.get(), "Ready")["message"]
        await world.delete("services", "sb-1")
        await world.advance(5.0)
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"
        assert service_of(world)["metadata"]["labels"] == tracking()


@pytest.mark.case(91, 140)
async def test_a_service_outside_the_filtered_watch_may_be_adopted() -> None:
    """Case 91: found by a create that collides, fetched once, adopted by one PATCH."""
    settings = Settings(sandbox_status_window=1.0, cache_label_selectors=True)
    async with open_world(settings, before=(service_body(labels=ADOPTABLE),)) as world:
        world.forget_requests()
        await world.ready_sandbox(sandbox(spec={"service": True}))
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"
        asked = {what: n for what, n in world.asked().items() if "services" in what}
        assert asked == {"create services": 1, "get services": 1, "patch services": 1}


@pytest.mark.case(91, 93)
async def test_an_error_on_the_way_to_an_adoption_names_its_step() -> None:
    """Case 91: a failed read and a failed write are told apart in Ready; both are repeated."""
    async with open_world() as world:
        await world.create(service_body(labels=ADOPTABLE))
        world.plane.fail_next("get", "services", 500)
        world.plane.fail_next("patch", "services", 500)
        await world.create(sandbox(spec={"service": True}))
        texts = [condition(world.get(), "Ready")["message"]]
        await world.advance(0.005)
        texts.append(condition(world.get(), "Ready")["message"])
        assert texts[0].startswith("Error seen: service get failed: ")
        assert texts[1].startswith("Error seen: failed to update service with owner reference: ")
        await world.advance(1.0)
        assert service_of(world)["spec"]["selector"] == tracking()
