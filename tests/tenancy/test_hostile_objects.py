"""Objects that a tenant writes to be served wrongly, or to cost others: they harm no other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lean_sandbox.model.names import name_hash
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.runtime.tracing import Tracing
from tests.support.builders import claim, member, pool, template
from tests.support.clock import EPOCH
from tests.support.extensions import (
    bound_name,
    get_claim,
    member_names,
    open_claims,
    open_pools,
    owner_of,
    ready_of,
    run_members,
)
from tests.support.names import CLAIMS, POOLS, SANDBOXES, WARM_POOL
from tests.support.world import (
    NS,
    World,
    condition,
    controlled_by,
    open_world,
    pod_body,
    sandbox,
    tracking,
)
from tests.tenancy.twins import TWINS

Json = dict[str, Any]
HOLD = {"finalizers": ["example.com/hold"]}
TRACE = "opentelemetry.io/trace-context"


async def still_serves(world: World) -> None:
    """See a Sandbox and a claim beside what is odd served as ever."""
    await world.create(claim("good"))
    assert bound_name(world, "good") in ("m-1", "m-2")
    assert ready_of(world, "good")[0] == "True"
    await world.ready_sandbox(sandbox("good-sandbox"))
    assert condition(world.get("good-sandbox"), "Ready")["status"] == "True"


# -- what a claim may ask for ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["A ", " A", "a", "A\t", "\uff21"])
async def test_a_look_alike_of_a_variable_overrides_nothing(name: str) -> None:
    """What the template says keeps its value; the other one is another variable, if any at all."""
    held = {"name": "A", "value": "of-the-template"}
    container = {"name": "main", "image": "busybox", "env": [held]}
    made = template(pod_spec={"containers": [container]}, envVarsInjectionPolicy="Allowed")
    async with open_claims(templates=(made,)) as world:
        world.plane.store.plant(claim(env=[{"name": name, "value": "$(A)\n\0"}]))
        await world.advance(3.0)
        env = world.get("c")["spec"]["podTemplate"]["spec"]["containers"][0]["env"]
        assert env == [held, {"name": name, "value": "$(A)\n\0"}]


async def test_a_claim_makes_nothing_privileged() -> None:
    """The spec of the Pod is the template's, whatever the claim writes of it."""
    privileged = {"containers": [{"name": "main", "securityContext": {"privileged": True}}]}
    body = claim()
    body["spec"] |= {"podTemplate": {"spec": privileged}, "securityContext": {"privileged": True}}
    async with open_claims() as world:
        world.plane.store.plant(body)
        await world.settle()
        assert "privileged" not in msgspec.json.encode(world.pod("c")).decode()


@pytest.mark.parametrize(
    "carried",
    [
        "[" * 100_000,
        '{"traceparent":' + "[" * 5000,
        msgspec.json.encode({"traceparent": "0" * 100_000, "tracestate": "a=" * 50_000}).decode(),
        '{"traceparent":"00-' + "\u2028" * 32 + '-b7ad6b7169203331-01"}',
    ],
    ids=["deep", "deep inside", "long", "odd characters"],
)
async def test_a_trace_of_a_tenant_costs_nobody_a_reconcile(carried: str) -> None:
    """However deep or long what an annotation says, it is at most ignored."""

    class Silent:
        def export(self, _spans: object) -> None:
            """Send nothing."""

        def shutdown(self) -> None:
            """Have nothing to end."""

        def force_flush(self, _timeout: int = 0) -> bool:
            """Have nothing to send."""
            return True

    tracing = Tracing(Silent())  # type: ignore[arg-type]
    try:
        async with open_claims("m-1", "m-2", tracing=tracing) as world:
            annotations = {TRACE: carried}
            world.plane.store.create(claim(metadata={"annotations": annotations}))
            await world.ready_sandbox(sandbox(metadata={"annotations": annotations}))
            assert ready_of(world)[0] == "True"
            assert condition(world.get(), "Ready")["status"] == "True"
            assert not any(world.controller.activity().errors.values())
    finally:
        await tracing.aclose()


# -- what was stored past a schema -----------------------------------------------------------------


@pytest.mark.parametrize("ttl", [-1, 10**400, 1e30, "5", 1.5, True], ids=lambda ttl: str(ttl)[:9])
async def test_an_odd_time_to_live_costs_one_claim(ttl: object) -> None:
    """One that has come or cannot be read ends or refuses the claim; others are served."""
    async with open_claims("m-1", "m-2") as world:
        world.plane.store.plant(claim(lifecycle={"ttlSecondsAfterFinished": ttl}))
        await world.advance(3.0)
        await still_serves(world)
        world.forget_requests()
        await world.advance(300.0)
        assert sum(world.asked().values()) <= 40


@pytest.mark.parametrize(
    ("replicas", "made"), [(-5, 0), ("5", 0), (10**30, 20), (1.5, 0), (None, 1)], ids=str
)
async def test_odd_replicas_cost_one_pool(replicas: object, made: int) -> None:
    """No number is none, nothing is the default, too many are a batch; others are served."""
    async with open_claims("m-1", "m-2", sandbox_warm_pool_max_batch_size=20) as world:
        odd = pool("odd")
        odd["spec"]["replicas"] = replicas
        world.plane.store.plant(odd)
        await world.settle()
        assert len(member_names(world, "odd")) == made
        await still_serves(world)


async def test_a_member_that_cannot_be_read_costs_its_pool_one_place() -> None:
    """The pool counts it as not ready, once nobody who led before can have known better."""
    async with open_claims("m-1", "m-2") as world:
        store = world.plane.store
        body = member(store.get(POOLS, NS, "pool"), template(), "odd")
        store.plant({**body, "status": {"conditions": "x"}})
        store.patch(POOLS, NS, "pool", {"spec": {"replicas": 3}})
        await world.advance(75.0)
        told = store.get(POOLS, NS, "pool")["status"]
        assert (told["replicas"], told["readyReplicas"], told["observedGeneration"]) == (3, 2, 2)
        await still_serves(world)


@pytest.mark.parametrize(
    "conditions",
    [
        [{"type": f"T{number}", "status": "True"} for number in range(1000)],
        [{"type": "Ready", "status": "True"}, {"type": "Ready", "status": "False"}],
        "x",
        [None],
        [7, {"type": {}}],
        {"type": "Ready"},
    ],
    ids=["thousands", "Ready twice", "a text", "null", "numbers", "an object"],
)
async def test_odd_conditions_cost_one_object(conditions: object) -> None:
    """In the status of a Sandbox, a claim and a pool: others are served, and nothing loops."""
    status = {"conditions": conditions}
    async with open_claims("m-1", "m-2") as world:
        for body in (claim("odd"), pool("odd"), sandbox("odd")):
            world.plane.store.plant({**body, "status": status})
        await world.advance(3.0)
        await still_serves(world)
        world.forget_requests()
        await world.advance(300.0)
        assert sum(world.asked().values()) <= 60


# -- what is forged, held back, or of the same hash ------------------------------------------------


async def test_a_member_with_the_uid_of_another_pool_is_not_handed_out() -> None:
    """The name of the pool is not enough: its uid has to be in the reference too."""
    async with open_claims(replicas=0) as world:
        owner = controlled_by(world.plane.store.get(POOLS, NS, "pool")) | {"uid": "forged"}
        labels = {WARM_POOL: name_hash("pool"), "agents.x-k8s.io/sandbox-template-ref-hash": "x"}
        metadata = {"ownerReferences": [owner], "labels": labels, **HOLD}
        await world.create(sandbox("trap", metadata=metadata))
        if world.find("pods", "trap") is not None:
            await run_members(world, "trap")
        await world.create(claim())
        assert bound_name(world) == "c"


@pytest.mark.parametrize("kind", [SANDBOXES, CLAIMS, POOLS])
async def test_a_deletion_that_a_finalizer_holds_up_costs_nothing(kind: str) -> None:
    """For ten minutes no request is about what is on its way out."""
    bodies = {
        SANDBOXES: sandbox("held", metadata=HOLD),
        CLAIMS: claim("held", metadata=HOLD),
        POOLS: {**pool("held"), "metadata": {"name": "held", "namespace": NS, **HOLD}},
    }
    async with open_claims() as world:
        await world.create(bodies[kind])
        if world.find("pods", "held") is not None:
            await world.run_pod("held")
        await world.advance(60.0)
        world.plane.store.delete(kind, NS, "held")
        await world.advance(60.0)
        world.forget_requests()
        await world.advance(600.0)
        assert not world.asked()


async def test_names_of_one_hash_share_no_pod() -> None:
    """Children are told apart by the uid of their owner; the hash only says what to watch."""
    assert name_hash(TWINS[0]) == name_hash(TWINS[1])
    async with open_world() as world:
        for name in TWINS:
            await world.ready_sandbox(sandbox(name))
        for name in TWINS:
            assert condition(world.get(name), "Ready")["status"] == "True"
        other = world.pod(TWINS[1])["metadata"]["uid"]
        expired = {"spec": {"shutdownTime": "2020-01-01T00:00:00Z", "shutdownPolicy": "Retain"}}
        await world.patch("sandboxes", TWINS[0], expired)
        await world.advance(10.0)
        assert "deletionTimestamp" in world.pod(TWINS[0])["metadata"]
        assert "deletionTimestamp" not in world.pod(TWINS[1])["metadata"]
        assert world.pod(TWINS[1])["metadata"]["uid"] == other
        assert condition(world.get(TWINS[1]), "Ready")["status"] == "True"


async def test_a_forged_member_of_a_pool_does_not_outlive_its_surplus() -> None:
    """Whoever may create Sandboxes can offer members: they count, and the pool stays as asked.

    So can who creates Pods: one that nobody controls is nobody's, whatever its labels say.
    """
    async with open_pools(template(pod_spec={"nodeName": "node-1"}), pool(replicas=2)) as world:
        await world.advance(3.0)
        owner = controlled_by(world.plane.store.get(POOLS, NS, "pool"))
        labels = {WARM_POOL: name_hash("pool")}
        for number in range(5):
            metadata = {"ownerReferences": [owner], "labels": labels}
            world.plane.store.create(sandbox(f"forged-{number}", metadata=metadata))
            stray = pod_body(f"stray-{number}", labels={**tracking(f"forged-{number}"), **labels})
            world.plane.store.create(stray)
        await world.advance(30.0)
        assert len(member_names(world)) == 2
        assert not any(world.controller.activity().errors.values())


async def test_a_forged_status_of_a_claim_binds_nothing() -> None:
    """It names a Sandbox of somebody else, with an address: the claim gets a member of its own."""
    async with open_claims("m-1", "m-2") as world:
        await world.create(claim("victim"))
        victims = bound_name(world, "victim")
        forged = {
            "sandbox": {"name": victims, "podIPs": ["6.6.6.6"]},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "x",
                    "message": "",
                    # A time is kept as long as the status is: that of the member it gets.
                    "lastTransitionTime": format_rfc3339(EPOCH),
                }
            ],
        }
        world.plane.store.plant({**claim("thief"), "status": forged})
        await world.settle()
        assert bound_name(world, "thief") not in ("", victims)
        assert "6.6.6.6" not in get_claim(world, "thief")["status"]["sandbox"]["podIPs"]
        assert owner_of(world, victims) == "SandboxClaim/victim"
