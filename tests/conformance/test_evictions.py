"""Laws of evictions: whom they concern, how they go, and the budgets that refuse them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import MERGE, Room, until
from tests.conformance.objects import pod

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

_READY = {
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}


def _eviction(**more: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p"},
        **more,
    }


async def _running(room: Room, name: str = "p", **labels: str) -> str:
    (await room.api.post(room.pods, pod(name, labels=labels))).ok()
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "nowhere"}}
    (await room.api.post(f"{room.pods}/{name}/binding", binding)).ok()
    (await room.api.patch(f"{room.pods}/{name}/status", _READY)).ok()
    return f"{room.pods}/{name}"


async def _budget(room: Room, **spec: Any) -> str:
    path = f"/apis/policy/v1/namespaces/{room.name}/poddisruptionbudgets"
    spec.setdefault("selector", {"matchLabels": {"app": "a"}})
    (await room.api.post(path, {"metadata": {"name": "b"}, "spec": spec})).ok()
    return f"{path}/b"


async def _counts(room: Room, path: str, **wanted: int) -> None:
    """Wait until the status of a budget counts as wanted."""

    async def check() -> bool:
        status = (await room.api.get(path)).ok().get("status") or {}
        return all(status.get(key) == value for key, value in wanted.items())

    await until(check)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {}),
        (400, {"metadata": {}}),
        (400, {"metadata": {"name": "other"}}),
        (400, {"metadata": {"name": "p", "namespace": "other"}}),
        (400, {"metadata": 3}),
        (400, {"metadata": []}),
        (400, _eviction(deleteOptions=3)),
        (400, _eviction(deleteOptions=[])),
        (400, _eviction(deleteOptions={"gracePeriodSeconds": "x"})),
        (400, _eviction(deleteOptions={"preconditions": 3})),
        (409, _eviction(deleteOptions={"preconditions": {"uid": "other"}})),
        (409, _eviction(deleteOptions={"preconditions": {"resourceVersion": "1"}})),
        (422, _eviction(deleteOptions={"dryRun": ["x"]})),
        (422, _eviction(deleteOptions={"propagationPolicy": "x"})),
        (400, _eviction(kind="Pod")),
        (400, _eviction(apiVersion="v1")),
        (400, []),
        (400, "x"),
        (400, b""),
        (400, b"{"),
    ],
)
async def test_an_eviction_that_means_nothing_evicts_nobody(
    room: Room, status: int, body: Any
) -> None:
    """It names the Pod of its path, and its options are those of a deletion."""
    made = await room.pod("p")
    reply = await room.api.post(f"{room.pods}/p/eviction", body, content="application/json")
    assert reply.status == status, reply.body
    kept = (await room.api.get(f"{room.pods}/p")).ok()["metadata"]
    assert kept["uid"] == made["metadata"]["uid"]
    assert "deletionTimestamp" not in kept


@pytest.mark.parametrize("query", [{"dryRun": "all"}, {"dryRun": ""}, {"fieldValidation": "x"}])
async def test_a_query_that_means_nothing_evicts_nobody(room: Room, query: Json) -> None:
    """The query of an eviction is that of a creation."""
    await room.pod("p")
    (await room.api.post(f"{room.pods}/p/eviction", _eviction(), **query)).refused(422, "Invalid")
    assert (await room.api.get(f"{room.pods}/p")).status == 200


async def test_a_dry_run_evicts_nobody(room: Room) -> None:
    """By the query and by the options in the body."""
    await room.pod("p")
    path = f"{room.pods}/p/eviction"
    assert (await room.api.post(path, _eviction(), dryRun="All")).status == 201
    dry = _eviction(deleteOptions={"dryRun": ["All"]})
    assert (await room.api.post(path, dry)).status == 201
    assert (await room.api.get(f"{room.pods}/p")).status == 200


async def test_an_eviction_has_the_grace_it_asks_for(room: Room) -> None:
    """Options of the body are those of the deletion; a condition says who ends the Pod."""
    path = await _running(room)
    wanted = _eviction(deleteOptions={"gracePeriodSeconds": 7})
    assert (await room.api.post(f"{path}/eviction", wanted)).status == 201
    evicted = (await room.api.get(path)).ok()
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 7
    reasons = {each["type"]: each.get("reason") for each in evicted["status"]["conditions"]}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"
    (await room.api.delete(path, gracePeriodSeconds=0)).ok()


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 2}, 0),
        ({"minAvailable": 1}, 1),
        ({"minAvailable": 0}, 2),
        ({"minAvailable": 3}, 0),
        ({"minAvailable": 2, "selector": {"matchLabels": {"app": "other"}}}, 0),
        (
            {
                "minAvailable": 1,
                "selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            },
            1,
        ),
        (
            {
                "minAvailable": 1,
                "selector": {
                    "matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "c"]}]
                },
            },
            1,
        ),
        ({"minAvailable": 0, "selector": {}}, 3),
    ],
)
async def test_a_budget_counts_its_pods(room: Room, spec: Json, allowed: int) -> None:
    """Its status says how many may go: the ready ones beyond those that it needs."""
    for name in ("p", "q"):
        await _running(room, name, app="a")
    await _running(room, "r")
    path = await _budget(room, **spec)
    await _counts(room, path, disruptionsAllowed=allowed, observedGeneration=1)
    status = (await room.api.get(path)).ok()["status"]
    condition = status["conditions"][0]
    assert (condition["type"], condition["status"]) == ("DisruptionAllowed", str(allowed > 0))


async def test_a_pod_that_its_budget_needs_is_not_evicted(room: Room) -> None:
    """429 with the budget and its counts; one that may go goes, and then no other."""
    paths = {name: await _running(room, name, app="a") for name in ("p", "q")}
    budget = await _budget(room, minAvailable=1)
    await _counts(room, budget, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1)
    assert (await room.api.post(f"{paths['p']}/eviction", _eviction())).status == 201
    await _counts(room, budget, disruptionsAllowed=0, currentHealthy=1)
    late = _eviction(metadata={"name": "q"})
    status = (await room.api.post(f"{paths['q']}/eviction", late)).refused(429, "TooManyRequests")
    assert status["message"] == (
        "Cannot evict pod as it would violate the pod's disruption budget."
    )
    assert status["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
        }
    ]
    kept = (await room.api.get(paths["q"])).ok()
    assert "deletionTimestamp" not in kept["metadata"]
    dry = await room.api.post(f"{paths['q']}/eviction", late, dryRun="All")
    dry.refused(429, "TooManyRequests")
    # An eviction asks for permission, a deletion does not.
    for path in paths.values():
        (await room.api.delete(path, gracePeriodSeconds=0)).ok()


async def test_a_budget_of_pods_nobody_counts_allows_nothing(room: Room) -> None:
    """A share of Pods without owners that have replicas is not known: it fails closed."""
    path = await _running(room, app="a")
    budget = await _budget(room, maxUnavailable="50%")
    await _counts(room, budget, disruptionsAllowed=0, observedGeneration=1)
    (await room.api.post(f"{path}/eviction", _eviction())).refused(429, "TooManyRequests")
    (await room.api.delete(path, gracePeriodSeconds=0)).ok()


async def test_a_pod_that_does_not_run_needs_no_permission(room: Room) -> None:
    """Pending, finished and foreign Pods are evicted whatever the budget."""
    (await room.api.post(room.pods, pod("p", labels={"app": "a"}))).ok()
    budget = await _budget(room, minAvailable=5)
    await _counts(room, budget, disruptionsAllowed=0, observedGeneration=1)
    assert (await room.api.post(f"{room.pods}/p/eviction", _eviction())).status == 201
    finished = await _running(room, app="a")
    done = {"status": {"phase": "Failed"}}
    (await room.api.patch(f"{finished}/status", done, MERGE)).ok()
    assert (await room.api.post(f"{finished}/eviction", _eviction())).status == 201
    foreign = await _running(room, app="b")
    assert (await room.api.post(f"{foreign}/eviction", _eviction())).status == 201
    (await room.api.delete(foreign, gracePeriodSeconds=0)).ok()


async def test_two_budgets_of_one_pod_are_no_budget(room: Room) -> None:
    """The server does not know whom to ask: 500, and the Pod stays."""
    path = await _running(room, app="a")
    await _budget(room, minAvailable=0)
    again = {"metadata": {"name": "c"}, "spec": {"minAvailable": 0, "selector": {}}}
    budgets = f"/apis/policy/v1/namespaces/{room.name}/poddisruptionbudgets"
    (await room.api.post(budgets, again)).ok()
    for name in ("b", "c"):
        await _counts(room, f"{budgets}/{name}", disruptionsAllowed=1)
    reply = await room.api.post(f"{path}/eviction", _eviction())
    assert reply.status == 500
    assert reply.message.startswith("This pod has more than one PodDisruptionBudget")
    assert "deletionTimestamp" not in (await room.api.get(path)).ok()["metadata"]
    (await room.api.delete(path, gracePeriodSeconds=0)).ok()


async def test_an_eviction_may_be_of_the_older_version(room: Room) -> None:
    """Older clients send policy/v1beta1; of any other there is none."""
    await room.pod("p")
    for version, status in (("policy/v1beta2", 400), ("policy/v1beta1", 201)):
        body = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": "p"}}
        reply = await room.api.post(f"{room.pods}/p/eviction", body)
        assert reply.status == status, reply.body
    assert (await room.api.get(f"{room.pods}/p")).status == 404
