"""A claim takes a ready member of its pool, and its client waits for nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.times import format_rfc3339
from tests.support.builders import claim, template
from tests.support.clock import EPOCH
from tests.support.extensions import (
    add_member,
    bound_name,
    claim_reconciles,
    events_of,
    get_claim,
    member_names,
    open_claims,
    owner_of,
    ready_of,
    run_members,
    writes_in_order,
)
from tests.support.names import (
    ANNOTATION,
    CLAIM_UID,
    CLAIMS,
    LAUNCH_TYPE,
    POOLS,
    REF_HASH,
    TEMPLATES,
    WARM_POOL,
)
from tests.support.world import NS, condition

Json = dict[str, Any]
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
# The worlds of these tests begin two seconds after the epoch.
EPOCH_PLUS_2 = format_rfc3339(EPOCH + timedelta(seconds=2))


async def test_the_wide_table_tells_who_has_a_sandbox_and_which_are_free() -> None:
    """Of a claimed one the name of its claim, of a free one that of its pool."""
    async with open_claims("m1", "m2") as world, httpx.AsyncClient() as client:
        await world.create(claim())
        url = f"{world.plane.url}/apis/agents.x-k8s.io/v1beta1/namespaces/{NS}/sandboxes"
        accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
        table = (await client.get(url, headers={"Accept": accept})).json()
    at = {one["name"]: at for at, one in enumerate(table["columnDefinitions"])}
    shown = {
        row["cells"][0]: (row["cells"][at["Claim"]], row["cells"][at["Pool"]])
        for row in table["rows"]
    }
    assert shown["m1"][0] == "c"
    assert not shown["m1"][1]
    assert not shown["m2"][0]
    assert shown["m2"][1] == "pool"


@pytest.mark.claim_case(52)
async def test_the_first_ready_member_becomes_the_claims_in_one_reconcile() -> None:
    """Claim case 52: m1 loses the pool's marks, gets the claim's, and the claim is Ready."""
    async with open_claims("m1", "m2", "m3") as world:
        made = await world.create(claim())
        held = world.get("m1")
        labels = held["metadata"]["labels"]
        assert labels[LAUNCH_TYPE] == "warm"
        assert labels[CLAIM_UID] == made["metadata"]["uid"]
        assert REF_HASH in labels
        assert not [key for key in labels if key == WARM_POOL or key.endswith("template-hash")]
        assert "agents.x-k8s.io/created-by" not in labels
        assert "agents.x-k8s.io/pod-name" not in held["metadata"]["annotations"]
        assert owner_of(world, "m1") == "SandboxClaim/c"
        assert ready_of(world) == ("True", "DependenciesReady", "Pod is Ready")
        status = get_claim(world)["status"]
        assert status["sandbox"] == {"name": "m1", "podIPs": held["status"]["podIPs"]}
        ready = condition(get_claim(world), "Ready")
        assert ready["observedGeneration"] == made["metadata"]["generation"]
        assert ready["lastTransitionTime"] == condition(held, "Ready")["lastTransitionTime"]
        assert claim_reconciles(world) == 1
        await world.advance(2.0)
        assert get_claim(world)["metadata"]["annotations"][ANNOTATION] == "m1"
        assert events_of(world) == [
            ("SandboxAdopted", "Adoption", 'Adopted warm pool Sandbox "m1"')
        ]


@pytest.mark.parametrize("operation", ["Update", "Apply"])
async def test_a_bound_sandbox_keeps_no_record_of_fields_but_that_of_an_apply(
    operation: str,
) -> None:
    """The binding patch ends managedFields; where somebody applied, his part stays recorded."""
    entry = {
        "manager": "me",
        "operation": operation,
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "time": EPOCH_PLUS_2,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": {"f:note": {}}}},
    }

    def recorded_member(plane: ControlPlane) -> None:
        add_member(plane, "m1")
        # In two steps, for who writes a field takes it over.
        for part in ({"annotations": {"note": "mine"}}, {"managedFields": [entry]}):
            plane.store.patch("sandboxes.agents.x-k8s.io", NS, "m1", {"metadata": part})

    async with open_claims(replicas=1, prepare=recorded_member, ready=False) as world:
        await run_members(world, "m1")
        await world.advance(2.0)
        await world.create(claim())
        await world.advance(2.0)
        assert ready_of(world)[0] == "True"
        metadata = world.get("m1")["metadata"]
        assert metadata["annotations"]["note"] == "mine"
        managers = [(one["manager"], one["operation"]) for one in metadata.get("managedFields", ())]
        assert (("me", "Apply") in managers) is (operation == "Apply")
        assert bool(managers) is (operation == "Apply")


@pytest.mark.claim_case(67)
@pytest.mark.parametrize("said", [None, "false", "true"])
async def test_of_leave_to_evict_the_templates_word_alone_stays(said: str | None) -> None:
    """Claim case 67: what the pool added to the Pod and its template ends with adoption."""
    metadata = {"annotations": {SAFE_TO_EVICT: said}} if said is not None else None
    async with open_claims("m1", templates=(template(metadata=metadata),)) as world:
        await world.create(claim())
        pod_template = world.get("m1")["spec"]["podTemplate"]
        for held in (pod_template.get("metadata", {}), world.pod("m1")["metadata"]):
            assert held.get("annotations", {}).get(SAFE_TO_EVICT) == said


@pytest.mark.claim_case(14, 68, 69)
async def test_the_claims_maker_and_trace_come_along() -> None:
    """Claim case 69: created-by is the claim's; the trace context is copied as it stands.

    68: foreign annotations of the member stay.
    """
    metadata = {
        "labels": {"agents.x-k8s.io/created-by": "go-client"},
        "annotations": {"opentelemetry.io/trace-context": '{"traceparent":"00-1"}'},
    }
    async with open_claims("m1") as world:
        await world.patch("sandboxes", "m1", {"metadata": {"annotations": {"x/y": "z"}}})
        await world.create(claim(metadata=metadata))
        held = world.get("m1")["metadata"]
        assert held["annotations"]["x/y"] == "z"
        assert held["labels"]["agents.x-k8s.io/created-by"] == "go-client"
        trace = held["annotations"]["opentelemetry.io/trace-context"]
        assert trace == '{"traceparent":"00-1"}'


@pytest.mark.claim_case(70)
async def test_a_bound_claim_takes_no_second_member() -> None:
    """Claim case 70: whatever happens to the claim or its pool, m2 stays in the pool."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        await world.patch(CLAIMS, "c", {"metadata": {"labels": {"touched": "1"}}})
        await world.patch(POOLS, "pool", {"spec": {"replicas": 3}})
        await world.advance(3.0)
        assert bound_name(world) == "m1"
        assert "m2" in member_names(world)


@pytest.mark.claim_case(71)
async def test_a_member_of_the_former_template_follows_the_pool_to_the_new_one() -> None:
    """Claim case 71: after adoption the label that policies select by is the new template's."""
    both = (template(), template("tpl2"))
    async with open_claims("m1", templates=both) as world:
        await world.patch(POOLS, "pool", {"spec": {"sandboxTemplateRef": {"name": "tpl2"}}})
        await world.create(claim())
        assert bound_name(world) == "m1"
        assert world.get("m1")["metadata"]["labels"][REF_HASH] == name_hash("tpl2")


@pytest.mark.claim_case(71)
@pytest.mark.parametrize("is_known", [True, False])
async def test_an_empty_template_hash_is_filled_by_the_patch_of_the_adoption(
    *, is_known: bool
) -> None:
    """Claim case 71: an adoption keeps the hash of a member, and fills one that is empty.

    Without a template it stays empty.
    """

    def empty(body: Json) -> None:
        body["metadata"]["labels"][REF_HASH] = ""

    def more(plane: ControlPlane) -> None:
        add_member(plane, "m1", change=empty)

    async with open_claims(replicas=1, prepare=more) as world:
        await run_members(world, "m1")
        await world.advance(2.0)
        if not is_known:
            await world.delete(TEMPLATES, "tpl")
        await world.create(claim())
        assert bound_name(world) == "m1"
        expected = name_hash("tpl") if is_known else ""
        assert world.get("m1")["metadata"]["labels"][REF_HASH] == expected
        assert writes_in_order(world).count("patch sandboxes") == 1


@pytest.mark.claim_case(72)
async def test_more_claims_than_members_start_cold_one_owner_each() -> None:
    """Claim case 72: two members, three claims: two adoptions, one cold start."""
    async with open_claims("m1", "m2") as world:
        for name in ("c1", "c2", "c3"):
            world.plane.store.create(claim(name))
        await world.settle()
        bound = [bound_name(world, name) for name in ("c1", "c2", "c3")]
        assert {"m1", "m2"} < set(bound)
        (cold,) = set(bound) - {"m1", "m2"}
        assert cold in ("c1", "c2", "c3")
        assert world.get(cold)["metadata"]["labels"][LAUNCH_TYPE] == "cold"
        assert len(set(bound)) == 3
        for name in ("c1", "c2", "c3"):
            assert owner_of(world, bound_name(world, name)) == f"SandboxClaim/{name}"


@pytest.mark.claim_case(73)
async def test_without_observability_only_the_time_of_first_observation_is_missing() -> None:
    """Claim case 73: one annotation patch all the same, and no Event when those are off too.

    A refused claim gets none.
    """
    off: Json = {"disable_claim_observability_annotations": True, "disable_claim_events": True}
    async with open_claims("m1", **off) as world:
        await world.create(claim())
        await world.create(claim("refused", additionalPodMetadata={"labels": {"plain": "x"}}))
        await world.advance(60.0)
        assert "annotations" not in get_claim(world, "refused")["metadata"]
        held = get_claim(world)["metadata"]["annotations"]
        assert set(held) == {ANNOTATION, "agents.x-k8s.io/claim-first-ready-at"}
        assert events_of(world) == []


@pytest.mark.claim_case(74)
async def test_all_annotations_come_in_one_patch_and_leave_others_alone() -> None:
    """Claim case 74: first observed, first ready, and the Sandbox; the user's survive.

    They come beside the status: who reads the claim when it is ready finds them.
    """
    async with open_claims("m1") as world:
        await world.create(claim(metadata={"annotations": {"x/y": "z"}}))
        assert ready_of(world)[0] == "True"
        held = get_claim(world)["metadata"]["annotations"]
        assert held == {
            "x/y": "z",
            ANNOTATION: "m1",
            "agents.x-k8s.io/claim-first-ready-at": EPOCH_PLUS_2,
            "agents.x-k8s.io/controller-first-observed-at": EPOCH_PLUS_2,
        }
        await world.advance(60.0)
        assert writes_in_order(world).count("patch sandboxclaims") == 1


@pytest.mark.claim_case(115)
async def test_a_claim_that_falters_keeps_the_time_of_its_first_ready() -> None:
    """Claim case 115: Ready, not Ready, Ready again: each is told, none stamps anew."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        stamped = get_claim(world)["metadata"]["annotations"]
        await world.run_pod("m1", ready=False, ips=("10.244.0.5",))
        await world.advance(3.0)
        assert ready_of(world)[0] == "False"
        await world.run_pod("m1", ips=("10.244.0.5",))
        await world.advance(3.0)
        assert ready_of(world)[0] == "True"
        assert get_claim(world)["metadata"]["annotations"] == stamped


@pytest.mark.claim_case(116)
async def test_a_first_ready_that_cannot_be_written_is_written_later_with_its_own_time() -> None:
    """Claim case 116: refused twice; the time is that of the binding, and it is written once."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "sandboxclaims", 500, times=2)
        await world.create(claim())
        await world.advance(30.0)
        held = get_claim(world)["metadata"]["annotations"]
        assert held["agents.x-k8s.io/claim-first-ready-at"] == EPOCH_PLUS_2
        assert held[ANNOTATION] == "m1"
        patches = [one for one in world.requests("patch", "sandboxclaims") if not one.subresource]
        assert [one.code for one in patches] == [500, 500, 200]
