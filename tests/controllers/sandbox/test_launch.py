"""A cold Sandbox: from its creation to Ready, and what that costs on the wire."""

from __future__ import annotations

import pytest

from lean_sandbox.config.options import Settings
from tests.support.volumes import WHOLE
from tests.support.world import condition, controlled_by, open_world, pod_body, sandbox, tracking


@pytest.mark.case(14)
async def test_a_new_sandbox_gets_its_pod_and_an_unready_status_after_the_window() -> None:
    """Case 14: the Pod is made from the template; once the window has passed so is the status."""
    async with open_world() as world:
        made = await world.create(sandbox())
        pod = world.pod()
        assert pod["metadata"]["labels"] == {"agents.x-k8s.io/sandbox-name-hash": "ae84b5b2"}
        assert "annotations" not in pod["metadata"]
        assert pod["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "agents.x-k8s.io/v1beta1",
                "kind": "Sandbox",
                "name": "sb-1",
                "uid": made["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert [container["name"] for container in pod["spec"]["containers"]] == ["main"]
        assert world.find("services") is None
        assert "status" not in world.get()
        await world.advance(1.0)
        stored = world.get()
        # The pod-name annotation is no longer written by anyone (changes, v1.0.0).
        assert "annotations" not in stored["metadata"]
        assert [one["type"] for one in stored["status"]["conditions"]] == [
            "Suspended",
            "PodScheduled",
            "Ready",
        ]
        assert condition(stored, "Suspended")["reason"] == "NotSuspended"
        assert condition(stored, "PodScheduled")["reason"] == "PodSchedulingUnknown"
        ready = condition(stored, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "DependenciesNotReady")
        assert ready["message"] == "Pod exists with phase: Pending"
        assert all(one["observedGeneration"] == 1 for one in stored["status"]["conditions"])
        assert stored["status"]["selector"] == "agents.x-k8s.io/sandbox-name-hash=ae84b5b2"


@pytest.mark.case(23, 24, 32)
async def test_a_quick_launch_costs_one_post_and_one_status_patch() -> None:
    """Case 23, 24, 32: one POST, one status PATCH, two GETs, two reconciles; then nothing."""
    async with open_world() as world:
        world.forget_requests()
        await world.create(sandbox())
        await world.bind()
        await world.pod_status(phase="Pending")
        await world.run_pod(ready=False, ips=("10.244.0.5", "fd00::5"))
        await world.run_pod(ips=("10.244.0.5", "fd00::5"))
        stored = world.get()
        assert condition(stored, "Ready")["status"] == "True"
        assert stored["status"]["podIPs"] == ["10.244.0.5", "fd00::5"]
        assert stored["status"]["nodeName"] == "node-1"
        assert world.asked() == {
            "create pods": 1,
            "patch sandboxes/status": 1,
            "get sandboxes": 1,
            "get pods": 1,
        }
        assert not world.conflicts()
        assert len(world.reports) == 2
        world.forget_requests()
        await world.advance(60.0)
        assert not world.asked(events=True)
        assert len(condition_types(world.get())) == 3


@pytest.mark.case(15, 28)
async def test_a_service_is_reported_before_the_pod_runs_and_its_maker_is_named() -> None:
    """Case 15: its name and FQDN, and readiness that counts it; POSTs say who we are."""
    async with open_world() as world:
        await world.create(sandbox(spec=WHOLE))
        service = world.find("services")
        assert service is not None
        await world.advance(1.0)
        status = world.get()["status"]
        assert status["service"] == "sb-1"
        assert status["serviceFQDN"] == "sb-1.ns.svc.cluster.local"
        message = condition(world.get(), "Ready")["message"]
        assert message == "Pod exists with phase: Pending; Service Exists"
        posts = [
            request
            for resource in ("pods", "services", "persistentvolumeclaims")
            for request in world.requests("create", resource)
        ]
        assert [request.code for request in posts] == [201, 201, 201]
        assert all(request.query["fieldManager"] == "sandbox-controller" for request in posts)
        assert {one["manager"] for one in service["metadata"]["managedFields"]} == {
            "sandbox-controller"
        }
        await world.run_pod()
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["message"]) == ("True", "Pod is Ready; Service Exists")


@pytest.mark.case(16)
async def test_the_cluster_domain_ends_the_name_of_the_service() -> None:
    """Case 16: a cluster with a domain of its own gets names of that domain."""
    settings = Settings(sandbox_status_window=0.0, cluster_domain="custom.domain")
    async with open_world(settings) as world:
        await world.create(sandbox(spec={"service": True}))
        assert world.get()["status"]["serviceFQDN"] == "sb-1.ns.svc.custom.domain"


@pytest.mark.case(17, 18, 19)
@pytest.mark.parametrize(
    ("labels", "annotations", "listed"),
    [
        pytest.param(
            {"a": "b"},
            {"c": "d"},
            {"propagated-labels": "a", "propagated-annotations": "c"},
            id="both",
        ),
        pytest.param(
            {"z": "1", "a": "2", "m": "3"}, {}, {"propagated-labels": "a,m,z"}, id="sorted"
        ),
        pytest.param({}, {"c": "d"}, {"propagated-annotations": "c"}, id="annotations only"),
    ],
)
async def test_the_pod_carries_the_templates_metadata_and_lists_its_keys(
    labels: dict[str, str], annotations: dict[str, str], listed: dict[str, str]
) -> None:
    """Case 17, 18, 19: labels and annotations go onto the Pod; the lists of keys are sorted."""
    async with open_world() as world:
        metadata = {"labels": labels, "annotations": annotations}
        await world.create(sandbox(template={"metadata": metadata}))
        pod = world.pod()["metadata"]
        assert pod["labels"] == {**labels, **tracking()}
        lists = {f"agents.x-k8s.io/{key}": value for key, value in listed.items()}
        assert pod["annotations"] == {**annotations, **lists}


@pytest.mark.case(22)
async def test_without_claim_templates_the_volumes_are_the_templates_own() -> None:
    """Case 22: the Pod's spec is the template's, nothing added, nothing set."""
    async with open_world() as world:
        volumes = [{"name": "b", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]
        made = await world.create(sandbox(pod_spec={"volumes": volumes}))
        spec = world.pod()["spec"]
        # The server adds the token of the service account.
        assert spec["volumes"][:-1] == volumes
        assert world.find("persistentvolumeclaims", "a-sb-1") is None
        wanted = made["spec"]["podTemplate"]["spec"]
        assert spec["containers"][0]["name"] == wanted["containers"][0]["name"]
        for untouched in ("hostname", "subdomain", "nodeName", "automountServiceAccountToken"):
            assert untouched not in spec


@pytest.mark.case(23, 24)
async def test_twenty_more_reconciles_over_a_ready_sandbox_write_nothing() -> None:
    """Case 23, 24: a reconcile over an unchanged world asks for nothing; conditions stay three."""
    async with open_world() as world:
        before = await world.ready_sandbox(sandbox(spec={"service": True}))
        world.forget_requests()
        for _ in range(20):
            await world.poke()
        assert len(world.reports) == 20
        assert not world.asked(events=True)
        assert world.get()["status"] == before["status"]
        assert len(condition_types(world.get())) == 3


@pytest.mark.case(25)
async def test_a_pod_that_an_unanswered_create_had_made_is_used() -> None:
    """Case 25: the server made the Pod and failed to say so; the next create collides, no error."""
    async with open_world() as world:
        events = world.plane.hold_events("pods")
        world.plane.fail_next("create", "pods", 500, after=True)
        await world.create(sandbox())
        assert condition(world.get(), "Ready")["reason"] == "ReconcilerError"
        first = world.pod()["metadata"]["uid"]
        await world.advance(0.005)
        assert [request.code for request in world.requests("create", "pods")] == [500, 409]
        events.release()
        await world.run_pod()
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["message"]) == ("True", "Pod is Ready")
        assert world.pod()["metadata"]["uid"] == first
        assert world.pod()["metadata"]["labels"] == tracking()


async def test_a_pod_that_lost_its_label_before_it_was_seen_is_used() -> None:
    """The create collides with our own Pod, which the watch does not show; it is labelled again."""
    async with open_world() as world:
        world.plane.fail_next("create", "pods", 500)
        made = await world.create(sandbox())
        world.plane.store.create(pod_body(owners=(controlled_by(made),)))
        await world.advance(0.005)
        await world.run_pod()
        assert condition(world.get(), "Ready")["status"] == "True"
        assert world.pod()["metadata"]["labels"] == tracking()
        assert [request.code for request in world.requests("create", "pods")] == [500, 409]


@pytest.mark.case(26)
async def test_a_foreign_pod_of_the_name_is_an_error_and_left_alone() -> None:
    """Case 26: the create collides with somebody's Pod: said in Ready, retried, nothing touched."""
    async with open_world() as world:
        owner = world.foreign_owner()
        theirs = await world.create(pod_body(owners=(owner,)))
        await world.create(sandbox())
        stored = world.get()
        ready = condition(stored, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "ReconcilerError")
        uid = owner["uid"]
        assert ready["message"] == (
            f'Error seen: pod "sb-1" is owned by Deployment/web (UID: {uid}), not by sandbox "sb-1"'
        )
        assert condition(stored, "PodScheduled")["status"] == "Unknown"
        assert "podIPs" not in stored["status"]
        assert "selector" not in stored["status"]
        await world.advance(30.0)
        assert world.pod() == theirs
        assert world.writes() == {"create pods": len(world.requests("create", "pods"))} | {
            "patch sandboxes/status": 1
        }
        await world.delete("pods", "sb-1")
        await world.advance(1000.0)
        assert world.pod()["metadata"]["labels"] == tracking()
        assert condition(world.get(), "Ready")["reason"] == "DependenciesNotReady"


@pytest.mark.case(27)
async def test_a_pod_that_the_server_refuses_is_shown_and_not_retried() -> None:
    """Case 27: a 422 is final until the spec changes (changes, v1.0.4): shown, never repeated."""
    async with open_world() as world:
        await world.create(sandbox(pod_spec={"containers": []}))
        stored = world.get()
        ready = condition(stored, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "InvalidConfiguration")
        assert "spec.containers: Required value" in ready["message"]
        assert condition(stored, "PodScheduled")["status"] == "Unknown"
        world.forget_requests()
        await world.advance(3600.0)
        assert not world.asked(events=True)
        good = [{"name": "main", "image": "busybox"}]
        await world.patch(
            "sandboxes", "sb-1", {"spec": {"podTemplate": {"spec": {"containers": good}}}}
        )
        assert world.find("pods") is not None
        await world.run_pod()
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.case(27)
@pytest.mark.parametrize("code", [403, 429, 500, 503])
async def test_a_pod_create_that_fails_otherwise_is_repeated_with_growing_pauses(code: int) -> None:
    """Case 27: any other failure is a ReconcilerError, tried again after 5, 10, 20 ms and so on."""
    async with open_world() as world:
        world.plane.fail_next("create", "pods", code, times=3)
        await world.create(sandbox())
        ready = condition(world.get(), "Ready")
        assert ready["reason"] == "ReconcilerError"
        assert ready["message"] == "Error seen: injected failure"
        for tried, pause_s in ((2, 0.005), (3, 0.010)):
            await world.advance(pause_s)
            assert len(world.requests("create", "pods")) == tried
        assert world.writes()["patch sandboxes/status"] == 1
        await world.advance(0.020)
        assert world.find("pods") is not None
        await world.run_pod()
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.case(27)
async def test_a_server_that_asks_to_wait_is_given_the_time() -> None:
    """Case 27: Retry-After of a 429 outweighs the short pauses of the first failures."""
    async with open_world() as world:
        world.plane.fail_next("create", "pods", 429, retry_after=7)
        await world.create(sandbox())
        await world.advance(6.9)
        assert len(world.requests("create", "pods")) == 1
        await world.advance(0.2)
        assert world.find("pods") is not None


async def test_a_sandbox_that_cannot_be_read_is_tried_again() -> None:
    """Nothing of its spec is known until then, not even whether it ends."""
    async with open_world() as world:
        world.plane.fail_next("get", "sandboxes", 500, times=3)
        await world.create(sandbox())
        assert world.find("pods") is None
        await world.advance(1.0)
        assert world.find("pods") is not None


@pytest.mark.case(27)
async def test_in_a_namespace_on_its_way_out_nothing_is_reported_or_hurried() -> None:
    """Case 27: a create refused because the namespace ends waits 30 s and writes no status."""
    cause = {"reason": "NamespaceTerminating", "message": "going", "field": "metadata.namespace"}
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "Forbidden",
        "message": "namespace ns is being terminated",
        "details": {"causes": [cause]},
        "code": 403,
    }
    async with open_world() as world:
        world.plane.fail_next("create", "pods", 403, times=2, body=body)
        await world.create(sandbox())
        await world.advance(29.9)
        assert world.writes() == {"create pods": 1}
        await world.advance(0.2)
        assert world.writes() == {"create pods": 2}
        assert "status" not in world.get()


def condition_types(obj: dict[str, object]) -> list[str]:
    """Return the types of the conditions in their order."""
    status = obj["status"]
    assert isinstance(status, dict)
    return [one["type"] for one in status["conditions"]]
