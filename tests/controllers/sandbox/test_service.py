"""The headless Service of a Sandbox: made, repaired, taken away, and its ports."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controllers.sandbox.services import (
    FQDN,
    ports_of,
    reported,
    service_of,
    want,
    with_ports,
)
from tests.support.names import SANDBOXES
from tests.support.world import (
    HASH_LABEL,
    NS,
    condition,
    controlled_by,
    open_world,
    sandbox,
    tracking,
)

Json = dict[str, Any]
HTTP = {"name": "http", "protocol": "TCP", "port": 8080, "targetPort": 8080}


# -- as the spec asks for it ----------------------------------------------------------------------


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
        await world.create(sandbox("sb.1", spec={"service": True}))
        await world.run_pod("sb.1")
        ready = condition(world.get("sb.1"), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "InvalidConfiguration")
        assert '"sb.1" is invalid' in ready["message"]
        assert world.get("sb.1")["status"]["podIPs"] == ["10.244.0.5"]
        world.forget_requests()
        await world.advance(120.0)
        assert not world.asked()
        await world.patch("sandboxes", "sb.1", {"spec": {"service": False}})
        assert condition(world.get("sb.1"), "Ready")["status"] == "True"


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
