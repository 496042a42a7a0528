"""The headless Service of a Sandbox: made, repaired, adopted, refused, taken away."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from tests.support.names import SANDBOXES
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

ADOPTABLE = {"agents.x-k8s.io/adoptable": "true"}
FQDN = "sb-1.ns.svc.cluster.local"
HTTP = {"name": "http", "protocol": "TCP", "port": 8080, "targetPort": 8080}


def with_ports(*ports: Json, service: bool | None = True, **pod_spec: Any) -> Json:
    """Return a Sandbox whose one container has these ports."""
    container = {"name": "main", "image": "busybox", "ports": list(ports)}
    spec = {} if service is None else {"service": service}
    return sandbox(spec=spec, pod_spec={"containers": [container], **pod_spec})


def service_body(
    *,
    labels: dict[str, str] | None = None,
    owners: tuple[Json, ...] = (),
    **spec: Any,
) -> Json:
    """Return a Service of the Sandbox's name that somebody else made; headless unless told."""
    metadata: Json = {"name": "sb-1", "namespace": NS}
    if labels:
        metadata["labels"] = labels
    if owners:
        metadata["ownerReferences"] = list(owners)
    body = {"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"port": 9090}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": body}


def service_of(world: World) -> Json:
    """Return the Service, which must be there."""
    found = world.find("services")
    assert found is not None
    return found


def ports_of(world: World) -> list[tuple[str, str, int, int]]:
    """Return the ports of the Service as name, protocol, port and target."""
    ports = service_of(world)["spec"].get("ports") or []
    return [(one["name"], one["protocol"], one["port"], one["targetPort"]) for one in ports]


def reported(world: World) -> tuple[str, str] | None:
    """Return the status' service and its name, None when neither is there."""
    status = world.get()["status"]
    if "service" not in status and "serviceFQDN" not in status:
        return None
    return status["service"], status["serviceFQDN"]


async def want(world: World, *, service: bool | None) -> None:
    """Set ``spec.service``; None takes it out."""
    await world.patch("sandboxes", "sb-1", {"spec": {"service": service}})


# -- none, and one of our own --------------------------------------------------------------------


@pytest.mark.case(15, 83, 87)
async def test_a_service_comes_and_goes_with_the_spec() -> None:
    """Case 83: none is made unasked. Asked for, it is made (15); no longer, it is deleted (87)."""
    async with open_world() as world:
        made = await world.ready_sandbox()
        assert world.find("services") is None
        assert reported(world) is None
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready"
        await want(world, service=True)
        service = service_of(world)
        assert service["metadata"]["labels"] == tracking()
        assert service["metadata"]["ownerReferences"] == [controlled_by(made)]
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"] == tracking()
        assert "ports" not in service["spec"]
        assert reported(world) == ("sb-1", FQDN)
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"
        await want(world, service=False)
        assert world.find("services") is None
        assert reported(world) is None
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready"


@pytest.mark.case(33, 83)
async def test_a_service_no_longer_asked_for_is_kept_and_stays_required() -> None:
    """Case 33: with the wish unset an own Service stays and remains part of readiness."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        await want(world, service=None)
        assert world.find("services") is not None
        assert reported(world) == ("sb-1", FQDN)
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready; Service Exists"
        # Once somebody removes it, it is neither made again nor required.
        world.forget_requests()
        await world.delete("services", "sb-1")
        assert world.find("services") is None
        assert reported(world) is None
        assert condition(world.get(), "Ready")["message"] == "Pod is Ready"
        assert world.asked() == {"patch sandboxes/status": 1}


@pytest.mark.case(84)
async def test_an_own_service_nobody_asked_for_is_repaired_except_its_ports() -> None:
    """Case 84: wish unset: selector and tracking label are put right, the ports left alone."""
    async with open_world() as world:
        await world.ready_sandbox(with_ports({"containerPort": 8080}))
        await want(world, service=None)
        world.forget_requests()
        await world.patch(
            "services",
            "sb-1",
            {
                "metadata": {"labels": {HASH_LABEL: "00000000", "keep": "me"}},
                "spec": {"selector": {"app": "x"}, "ports": [{"name": "own", "port": 9090}]},
            },
        )
        service = service_of(world)
        assert service["metadata"]["labels"] == {**tracking(), "keep": "me"}
        assert service["spec"]["selector"] == tracking()
        assert ports_of(world) == [("own", "TCP", 9090, 9090)]
        assert reported(world) == ("sb-1", FQDN)
        assert world.asked() == {"get services": 1, "patch services": 1}


@pytest.mark.case(85, 86)
async def test_a_wanted_service_is_repaired_with_its_ports() -> None:
    """Case 85: wish true: selector and ports are put right, foreign labels kept.

    A field of a port that the controller does not set is no difference (86).
    """
    async with open_world() as world:
        await world.ready_sandbox(with_ports({"containerPort": 8080, "name": "http"}))
        world.forget_requests()
        await world.patch(
            "services",
            "sb-1",
            {
                "metadata": {"labels": {"keep": "me"}},
                "spec": {"selector": {"app": "x"}, "ports": [HTTP, {"name": "b", "port": 9090}]},
            },
        )
        service = service_of(world)
        assert service["metadata"]["labels"] == {**tracking(), "keep": "me"}
        assert service["spec"]["selector"] == tracking()
        assert ports_of(world) == [("http", "TCP", 8080, 8080)]
        assert world.asked() == {"get services": 1, "patch services": 1}
        world.forget_requests()
        await world.patch("services", "sb-1", {"spec": {"ports": [{**HTTP, "appProtocol": "h2c"}]}})
        assert service_of(world)["spec"]["ports"][0]["appProtocol"] == "h2c"
        assert not world.writes()


@pytest.mark.case(100)
async def test_a_wanted_service_that_was_deleted_is_made_again() -> None:
    """Case 100: its end wakes the Sandbox, and one POST puts it back if the Sandbox is there."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        uid = service_of(world)["metadata"]["uid"]
        world.forget_requests()
        await world.delete("services", "sb-1")
        assert service_of(world)["metadata"]["uid"] != uid
        assert world.asked() == {"get sandboxes": 1, "create services": 1}
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.case(87)
async def test_a_service_that_cannot_be_deleted_is_an_error_that_is_repeated() -> None:
    """Case 87: a refused delete shows in Ready, the fields stay, and it is tried again."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        world.plane.fail_next("delete", "services", 500)
        world.plane.store.patch(
            "sandboxes.agents.x-k8s.io", NS, "sb-1", {"spec": {"service": False}}
        )
        await world.settle()
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "ReconcilerError")
        assert ready["message"].startswith("Error seen: failed to delete service: ")
        assert reported(world) == ("sb-1", FQDN)
        await world.advance(1.0)
        assert world.find("services") is None
        assert reported(world) is None
        assert condition(world.get(), "Ready")["status"] == "True"


# -- Services of others --------------------------------------------------------------------------


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


@pytest.mark.case(88)
async def test_a_foreign_service_is_ignored_when_none_is_wanted() -> None:
    """Case 88: with the wish false, even somebody's own Service is no obstacle."""
    async with open_world() as world:
        world.plane.store.create(service_body(owners=(world.foreign_owner(),)))
        before = service_of(world)
        await world.ready_sandbox(sandbox(spec={"service": False}))
        assert service_of(world) == before
        assert condition(world.get(), "Ready")["status"] == "True"


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
        ghost = {**world.foreign_owner("Sandbox", "sb-1"), "apiVersion": "agents.x-k8s.io/v1beta1"}
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
    """Case 91: found by a create that collides, looked at once, adopted by one PATCH."""
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


# -- ports ---------------------------------------------------------------------------------------


@pytest.mark.case(95, 96, 97, 98)
@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param(
            [
                [
                    {"containerPort": 9090, "protocol": "UDP"},
                    {"containerPort": 8080},
                    {"containerPort": 9090},
                    {"containerPort": 0},
                ],
                [{"containerPort": 8080, "name": "http"}],
            ],
            [
                ("http", "TCP", 8080, 8080),
                ("p-9090-tcp", "TCP", 9090, 9090),
                ("p-9090-udp", "UDP", 9090, 9090),
            ],
            id="95-sorted-named-and-without-zero",
        ),
        pytest.param(
            [
                [{"containerPort": 9090, "name": "http"}],
                [{"containerPort": 8080, "name": "http"}],
            ],
            [("p-8080-tcp", "TCP", 8080, 8080), ("http", "TCP", 9090, 9090)],
            id="96-a-name-belongs-to-the-first",
        ),
        pytest.param(
            [[{"containerPort": 9090, "name": "p-8080-tcp"}, {"containerPort": 8080}]],
            [("p-8080-tcp-2", "TCP", 8080, 8080), ("p-8080-tcp", "TCP", 9090, 9090)],
            id="97-a-made-up-name-gives-way",
        ),
    ],
)
async def test_the_service_has_the_ports_of_the_template(
    containers: list[list[Json]], expected: list[tuple[str, str, int, int]]
) -> None:
    """Case 95: the ports of the Service are the template's, sorted, each with a name of its own.

    A name given twice stays with the first (96); a made-up name gives way to a given one (97).
    """
    async with open_world() as world:
        listed = [
            {"name": f"c{n}", "image": "busybox", "ports": ports}
            for n, ports in enumerate(containers)
        ]
        await world.create(sandbox(spec={"service": True}, pod_spec={"containers": listed}))
        assert ports_of(world) == expected


@pytest.mark.case(98)
async def test_only_init_containers_that_stay_lend_their_ports() -> None:
    """Case 98: an init container's port counts when it is restarted always, as a sidecar is."""
    once = {"name": "once", "image": "busybox", "ports": [{"containerPort": 1111}]}
    stays = {**once, "name": "stays", "restartPolicy": "Always", "ports": [{"containerPort": 2222}]}
    async with open_world() as world:
        await world.create(with_ports({"containerPort": 8080}, initContainers=[once, stays]))
        assert [port for _, _, port, _ in ports_of(world)] == [2222, 8080]


@pytest.mark.case(99)
async def test_a_port_added_to_the_template_reaches_the_service_but_not_the_pod() -> None:
    """Case 99: the Service follows the template although the Pod keeps the one it was made with."""
    async with open_world() as world:
        await world.ready_sandbox(with_ports())
        assert "ports" not in service_of(world)["spec"]
        world.forget_requests()
        container = {"name": "main", "image": "busybox", "ports": [{"containerPort": 8080}]}
        await world.patch(
            "sandboxes", "sb-1", {"spec": {"podTemplate": {"spec": {"containers": [container]}}}}
        )
        assert ports_of(world) == [("p-8080-tcp", "TCP", 8080, 8080)]
        assert not world.pod()["spec"]["containers"][0].get("ports")
        assert world.asked() == {
            "get sandboxes": 1,
            "patch services": 1,
            "patch sandboxes/status": 1,
        }


# -- what the server refuses -------------------------------------------------------------------


@pytest.mark.case(94)
async def test_a_name_that_no_service_may_have_is_told_once_and_the_pod_runs() -> None:
    """Case 94: a name legal for a Sandbox only: InvalidConfiguration (changes, v1.0.4), no retry.

    The words are the server's. Without the wish for a Service all is well.
    """
    async with open_world() as world:
        await world.create(sandbox("1-sb", spec={"service": True}))
        await world.run_pod("1-sb")
        ready = condition(world.get("1-sb"), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "InvalidConfiguration")
        assert '"1-sb" is invalid' in ready["message"]
        assert world.get("1-sb")["status"]["podIPs"] == ["10.244.0.5"]
        world.forget_requests()
        await world.advance(120.0)
        assert not world.asked()
        await world.patch("sandboxes", "1-sb", {"spec": {"service": False}})
        assert condition(world.get("1-sb"), "Ready")["status"] == "True"


async def test_a_service_that_another_process_has_made_is_not_deleted() -> None:
    """Its events may come before those of its Sandbox, which is fetched before the Service goes."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": False}))
        held = world.plane.hold_events("sandboxes")
        wanted = {"spec": {"service": True}}
        owner = controlled_by(world.plane.store.patch(SANDBOXES, NS, "sb-1", wanted))
        metadata = {"name": "sb-1", "namespace": NS, "labels": tracking()}
        body = {"metadata": {**metadata, "ownerReferences": [owner]}}
        body["spec"] = {"clusterIP": "None", "selector": tracking()}
        made = world.plane.store.create({"apiVersion": "v1", "kind": "Service", **body})
        await world.moments(300)
        held.release()
        await world.settle()
        found = world.plane.store.get("services", NS, "sb-1")
        assert found["metadata"]["uid"] == made["metadata"]["uid"]
