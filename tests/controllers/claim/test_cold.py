"""A claim whose pool has nothing to give gets a Sandbox of its own; and what stands in the way."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.request import Target
from tests.support.builders import claim, pool, template
from tests.support.extensions import (
    bound_name,
    claim_reconciles,
    events_of,
    get_claim,
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
    POLICIES,
    POOLS,
    REF_HASH,
    SANDBOXES,
    TEMPLATES,
)
from tests.support.world import NS, condition, controlled_by, sandbox

Json = dict[str, Any]


@pytest.mark.claim_case(1)
async def test_an_empty_pool_gives_a_new_sandbox_of_the_claims_name() -> None:
    """Claim case 1: marked as cold, owned by the claim, told with an Event."""
    async with open_claims() as world:
        made = await world.create(claim())
        held = world.get("c")["metadata"]
        assert held["labels"] == {
            CLAIM_UID: made["metadata"]["uid"],
            LAUNCH_TYPE: "cold",
            REF_HASH: held["labels"][REF_HASH],
        }
        assert held["annotations"] == {"agents.x-k8s.io/sandbox-template-ref": "tpl"}
        assert owner_of(world, "c") == "SandboxClaim/c"
        assert ready_of(world) == ("False", "SandboxNotReady", "Sandbox is not ready")
        assert get_claim(world)["status"]["sandbox"] == {"name": "c"}
        await world.advance(1.0)
        assert events_of(world) == [("SandboxProvisioned", "Provisioning", 'Created Sandbox "c"')]


async def test_the_annotation_of_warm_claims_is_not_put_on_a_cold_one() -> None:
    """The annotation says that the Sandbox came from a pool (claims, 2 and 3.6)."""
    async with open_claims() as world:
        await world.create(claim())
        await run_members(world, "c")
        await world.advance(12.0)
        annotations = get_claim(world)["metadata"]["annotations"]
        assert "agents.x-k8s.io/claim-first-ready-at" in annotations
        assert ANNOTATION not in annotations


@pytest.mark.claim_case(2)
@pytest.mark.parametrize(("said", "expected"), [(None, False), (True, True)])
async def test_tokens_are_mounted_only_where_the_template_asks(
    said: object, expected: object
) -> None:
    """Claim case 2: unset becomes false, true stays true."""
    pod_spec = {} if said is None else {"automountServiceAccountToken": said}
    async with open_claims(templates=(template(pod_spec=pod_spec),)) as world:
        await world.create(claim())
        made = world.get("c")["spec"]["podTemplate"]["spec"]
        assert made["automountServiceAccountToken"] is expected


@pytest.mark.claim_case(3)
@pytest.mark.parametrize("management", ["Managed", "Unmanaged"])
async def test_names_are_resolved_outside_only_under_the_secure_default(management: str) -> None:
    """Claim case 3: public name servers when the policy is ours, untouched otherwise."""
    made = template(networkPolicyManagement=management)
    async with open_claims(templates=(made,)) as world:
        await world.create(claim())
        spec = world.get("c")["spec"]["podTemplate"]["spec"]
        if management == "Managed":
            assert spec["dnsPolicy"] == "None"
            assert spec["dnsConfig"]["nameservers"] == ["8.8.8.8", "1.1.1.1"]
        else:
            assert "dnsConfig" not in spec


@pytest.mark.claim_case(4)
async def test_a_missing_pool_is_told_after_a_live_look() -> None:
    """Claim case 4: WarmPoolNotFound, nothing is created; a pool that comes is used at once.

    It is not looked for again: the watch tells when it comes.
    """
    async with open_claims() as world:
        await world.create(claim(pool="later"))
        assert ready_of(world) == (
            "False",
            "WarmPoolNotFound",
            'SandboxWarmPool "later" not found',
        )
        assert len(world.requests("get", "sandboxwarmpools")) == 1
        assert world.find("sandboxes", "c") is None
        # By then it says, too, since when it is known.
        await world.advance(2.0)
        world.forget_requests()
        await world.advance(300.0)
        assert not world.asked(events=True)
        await world.create(pool("later"))
        assert bound_name(world) == "c"


@pytest.mark.claim_case(5)
async def test_a_missing_template_is_told_and_its_creation_wakes_the_claim() -> None:
    """Claim case 5: TemplateNotFound; the Sandbox appears as soon as the template does."""
    async with open_claims(templates=()) as world:
        await world.create(claim())
        assert ready_of(world) == (
            "False",
            "TemplateNotFound",
            'SandboxTemplate "tpl" not found',
        )
        await world.create(template())
        assert bound_name(world) == "c"
        assert ready_of(world)[1] == "SandboxNotReady"


@pytest.mark.claim_case(6)
async def test_an_empty_name_of_a_pool_is_a_missing_pool() -> None:
    """Claim case 6: and no list is asked for by mistake."""
    async with open_claims() as world:
        await world.create(claim(pool=""))
        assert ready_of(world)[1:] == ("WarmPoolNotFound", 'SandboxWarmPool "" not found')
        assert not [one for one in world.asked() if one.startswith(("list", "get"))]


@pytest.mark.claim_case(7)
async def test_the_end_of_a_claim_comes_before_the_next_try() -> None:
    """Claim case 7: ten seconds to live, a missing pool: expired after ten seconds, not sixty."""
    lifecycle = {"shutdownTime": "2026-01-02T03:04:17Z"}
    async with open_claims() as world:
        await world.create(claim(pool="missing", lifecycle=lifecycle))
        await world.advance(9.0)
        assert ready_of(world)[1] == "WarmPoolNotFound"
        await world.advance(1.5)
        assert ready_of(world)[1] == "ClaimExpired"


@pytest.mark.claim_case(8)
async def test_a_sandbox_of_the_claims_name_is_not_taken_from_nobody() -> None:
    """Claim case 8: ReconcilerError with the way out, and the Sandbox is left as it is."""
    async with open_claims(before=(sandbox("c"),)) as world:
        await world.create(claim())
        assert ready_of(world)[1] == "ReconcilerError"
        assert ready_of(world)[2] == (
            'Error seen: sandbox "c" is not controlled by claim "c". Please use a different'
            " claim name or delete the sandbox manually"
        )
        assert "ownerReferences" not in world.get("c")["metadata"]
        await world.delete("sandboxes", "c")
        await world.advance(10.0)
        assert owner_of(world, "c") == "SandboxClaim/c"


@pytest.mark.claim_case(9)
async def test_a_sandbox_that_is_the_claims_already_gets_its_missing_marks() -> None:
    """Claim case 9: bound; launch-type cold and the template's hash are added."""
    async with open_claims() as world:
        held = world.plane.store.create(claim(pool="later"))
        await world.settle()
        body = sandbox("c", metadata={"ownerReferences": [controlled_by(held)]})
        world.plane.store.create(body)
        await world.create(pool("later"))
        assert bound_name(world) == "c"
        labels = world.get("c")["metadata"]["labels"]
        assert labels[LAUNCH_TYPE] == "cold"
        assert REF_HASH in labels


@pytest.mark.claim_case(10)
async def test_ready_is_mirrored_with_the_claims_generation() -> None:
    """Claim case 10: podIPs copied, observedGeneration is the claim's."""
    async with open_claims() as world:
        await world.create(claim())
        await world.patch(CLAIMS, "c", {"spec": {"lifecycle": {"shutdownPolicy": "Delete"}}})
        await run_members(world, "c")
        await world.advance(2.0)
        assert ready_of(world)[0] == "True"
        status = get_claim(world)["status"]
        assert status["sandbox"]["podIPs"] == world.get("c")["status"]["podIPs"] != []
        assert condition(get_claim(world), "Ready")["observedGeneration"] == 2


@pytest.mark.claim_case(11)
async def test_a_create_that_collides_with_our_own_is_used_in_the_same_reconcile() -> None:
    """Claim case 11: AlreadyExists, a live GET shows the claim's own Sandbox: bound."""
    async with open_claims() as world:

        def somebody() -> None:
            owner = controlled_by(get_claim(world))
            world.plane.store.create(sandbox("c", metadata={"ownerReferences": [owner]}))

        world.meanwhile("create", "sandboxes", somebody)
        await world.create(claim())
        assert bound_name(world) == "c"
        assert claim_reconciles(world) <= 2


@pytest.mark.parametrize("code", [429, 503])
async def test_a_collision_is_looked_at_when_a_busy_server_says(code: int) -> None:
    """Retry-After is honoured where it is longer than the usual wait."""
    async with open_claims() as world:
        world.plane.fail_next("create", "sandboxes", 409, body=ALREADY_EXISTS)
        world.plane.fail_next("get", "sandboxes", code, retry_after=7)
        await world.create(claim())
        assert ready_of(world)[1] == "SandboxCreatePending"
        await world.advance(6.9)
        assert (len(world.requests("create", "sandboxes")), bound_name(world)) == (1, "")
        await world.advance(0.2)
        assert bound_name(world) == "c"


@pytest.mark.claim_case(11)
async def test_collisions_in_a_row_are_looked_at_ever_more_rarely() -> None:
    """Claim case 11: 200 ms, doubled each time up to five seconds; a successor begins anew."""
    async with open_claims() as world:
        for verb, code in (("create", 409), ("get", 500)):
            body = ALREADY_EXISTS if code == 409 else None
            world.plane.fail_next(verb, "sandboxes", code, times=1000, body=body)
        await world.create(claim())
        waits = []
        for _ in range(8):
            tried = len(world.requests("create", "sandboxes"))
            began = world.clock.monotonic()
            while len(world.requests("create", "sandboxes")) == tried:
                await world.advance(0.1)
            waits.append(round(world.clock.monotonic() - began, 1))
        assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
        waits_for = "Sandbox already created; waiting for cache to converge"
        assert ready_of(world) == ("False", "SandboxCreatePending", waits_for)
        world.plane.store.delete(CLAIMS, NS, "c", grace_s=0)
        await world.create(claim())
        tried = len(world.requests("create", "sandboxes"))
        await world.advance(0.3)
        assert len(world.requests("create", "sandboxes")) == tried + 1


@pytest.mark.claim_case(12)
async def test_a_collision_says_nothing_where_a_sandbox_is_named_already() -> None:
    """Claim case 12: the whole status stays as it is, byte for byte, until the GET succeeds."""
    async with open_claims() as world:
        await world.create(claim())
        await run_members(world, "c")
        await world.advance(3.0)
        told = get_claim(world)["status"]
        assert ready_of(world)[0] == "True"
        world.plane.fail_next("create", "sandboxes", 409, times=2, body=ALREADY_EXISTS)

        def has_collided(_: Target) -> bool:
            return len(world.requests("create", "sandboxes")) > 1

        world.plane.fail_next("get", "sandboxes", 500, times=2, match=has_collided)
        await world.delete("sandboxes", "c")
        await world.advance(0.1)
        assert len(world.requests("create", "sandboxes")) == 2
        assert get_claim(world)["status"] == told
        await world.advance(2.0)
        assert ready_of(world)[0] == "False"
        assert owner_of(world, "c") == "SandboxClaim/c"


@pytest.mark.claim_case(20)
async def test_sandboxes_that_cannot_be_listed_cost_no_claim_its_binding() -> None:
    """Claim case 20: while the watch has to begin anew and cannot, nothing is told or taken."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        await world.advance(3.0)
        told = get_claim(world)["status"]
        await world.cut_watches()
        world.plane.fail_next("list", "sandboxes", 500, times=4)
        label = {"metadata": {"labels": {"mine": "1"}}}
        world.plane.store.patch(CLAIMS, NS, "c", label)
        world.plane.store.patch(SANDBOXES, NS, "m1", label)
        world.plane.compact()
        world.forget_requests()
        await world.recover()
        await world.advance(3.0)
        assert len([one for one in world.requests("list", "sandboxes") if one.code == 500]) == 4
        assert get_claim(world)["status"] == told
        assert owner_of(world, "m2") == "SandboxWarmPool/pool"
        assert not world.writes()


@pytest.mark.claim_case(20)
async def test_a_bound_sandbox_that_cannot_be_read_stays_bound() -> None:
    """Claim case 20: 500 on the GET before its metadata is written: an error, the name is kept."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        await world.advance(3.0)
        world.plane.fail_next("get", "sandboxes", 500)
        extra = {"annotations": {"mine": "1"}}
        await world.patch(CLAIMS, "c", {"spec": {"additionalPodMetadata": extra}})
        assert ready_of(world)[1] == "ReconcilerError"
        assert bound_name(world) == "m1"
        assert owner_of(world, "m2") == "SandboxWarmPool/pool"
        assert world.find("sandboxes", "c") is None
        await world.advance(1.0)
        assert ready_of(world)[0] == "True"


@pytest.mark.claim_case(13)
async def test_a_create_that_fails_is_an_error_and_is_tried_again() -> None:
    """Claim case 13: ReconcilerError with the server's words, then backoff."""
    async with open_claims() as world:
        world.plane.fail_next("create", "sandboxes", 500)
        await world.create(claim())
        status, reason, message = ready_of(world)
        assert (status, reason) == ("False", "ReconcilerError")
        assert message.startswith("Error seen: sandbox create error: ")
        await world.advance(1.0)
        assert bound_name(world) == "c"


@pytest.mark.claim_case(14, 15)
@pytest.mark.parametrize("maker", ["go-client", ""])
async def test_trace_and_maker_are_copied(maker: str) -> None:
    """Claim case 14: the trace as it stands; 15: created-by on both levels, or on neither."""
    labels = {"agents.x-k8s.io/created-by": maker} if maker else {}
    annotations = {"opentelemetry.io/trace-context": "{}"}
    async with open_claims() as world:
        await world.create(claim(metadata={"labels": labels, "annotations": annotations}))
        made = world.get("c")
        inner = made["spec"]["podTemplate"]["metadata"]["labels"]
        for held in (made["metadata"]["labels"], inner):
            assert held.get("agents.x-k8s.io/created-by", "") == maker
        assert made["metadata"]["annotations"]["opentelemetry.io/trace-context"] == "{}"


@pytest.mark.claim_case(119)
async def test_a_sandbox_keeps_whatever_word_the_claim_has_for_its_maker() -> None:
    """Claim case 119: one that nobody knows is kept on the Sandbox; its Pod says unknown."""
    async with open_claims() as world:
        await world.create(claim(metadata={"labels": {"agents.x-k8s.io/created-by": "evil"}}))
        assert world.get("c")["metadata"]["labels"]["agents.x-k8s.io/created-by"] == "evil"
        assert world.pod("c")["metadata"]["labels"]["agents.x-k8s.io/created-by"] == "unknown"


@pytest.mark.claim_case(17)
async def test_a_templates_new_metadata_reaches_a_bound_sandbox_with_the_next_reconcile() -> None:
    """Claim case 17: the template alone causes no reconcile; the next one brings the label."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        before = claim_reconciles(world)
        newer = {"podTemplate": {"metadata": {"labels": {"x/y": "1"}}}}
        await world.patch(TEMPLATES, "tpl", {"spec": newer})
        assert claim_reconciles(world) == before
        await world.patch(CLAIMS, "c", {"spec": {"lifecycle": {"shutdownPolicy": "Delete"}}})
        assert world.get("m1")["spec"]["podTemplate"]["metadata"]["labels"]["x/y"] == "1"
        await world.advance(2.0)
        assert world.pod("m1")["metadata"]["labels"]["x/y"] == "1"


@pytest.mark.claim_case(18)
async def test_a_deleted_pool_does_not_concern_a_bound_claim() -> None:
    """Claim case 18: Ready stays mirrored, and nobody looks for the pool."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        await world.delete(POOLS, "pool")
        world.forget_requests()
        await world.patch(CLAIMS, "c", {"spec": {"lifecycle": {"shutdownPolicy": "Delete"}}})
        assert ready_of(world)[0] == "True"
        assert not world.requests("get", "sandboxwarmpools")
        assert writes_in_order(world) == ["patch sandboxclaims/status"]


@pytest.mark.claim_case(18)
async def test_a_deleted_pool_is_told_where_metadata_has_to_be_propagated() -> None:
    """Claim case 18: WarmPoolNotFound; the Sandbox stays bound."""
    extra = {"annotations": {"mine": "1"}}
    async with open_claims("m1") as world:
        await world.create(claim(additionalPodMetadata=extra))
        await world.advance(3.0)
        await world.delete(POOLS, "pool")
        await world.patch(CLAIMS, "c", {"spec": {"lifecycle": {"shutdownPolicy": "Delete"}}})
        assert ready_of(world) == (
            "False",
            "WarmPoolNotFound",
            'SandboxWarmPool "pool" not found',
        )
        assert bound_name(world) == "m1"


@pytest.mark.claim_case(18)
@pytest.mark.parametrize("gone", [POOLS, TEMPLATES])
async def test_a_claim_that_waits_for_its_labels_is_told_that_they_cannot_be_had(gone: str) -> None:
    """Claim case 18: it is bound and not Ready, so that nothing else would bring it back soon.

    The safety net has nothing to catch.
    """
    extra = {"labels": {"sandbox.users.io/mine": "1"}}
    async with open_claims("m1") as world:
        await world.create(claim(additionalPodMetadata=extra))
        await world.advance(3.0)
        await world.run_pod("m1", ready=False)
        await world.advance(3.0)
        assert ready_of(world)[:2] == ("False", "DependenciesNotReady")
        await world.delete(gone, "pool" if gone == POOLS else "tpl")
        reason = "WarmPoolNotFound" if gone == POOLS else "TemplateNotFound"
        assert ready_of(world)[:2] == ("False", reason)
        assert bound_name(world) == "m1"


@pytest.mark.claim_case(19)
async def test_metadata_that_cannot_be_written_is_an_error_of_a_bound_claim() -> None:
    """Claim case 19: ReconcilerError, the name is kept; the next reconcile makes good."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        world.plane.fail_next("patch", "sandboxes", 500)
        extra = {"annotations": {"mine": "1"}}
        await world.patch(CLAIMS, "c", {"spec": {"additionalPodMetadata": extra}})
        status, reason, message = ready_of(world)
        assert (status, reason) == ("False", "ReconcilerError")
        assert message.startswith('Error seen: failed to patch sandbox metadata for claim "c": ')
        assert bound_name(world) == "m1"
        await world.advance(1.0)
        assert ready_of(world)[0] == "True"
        assert world.get("m1")["spec"]["podTemplate"]["metadata"]["annotations"]["mine"] == "1"


@pytest.mark.claim_case(110)
async def test_policies_of_older_days_go_with_the_first_pass() -> None:
    """Claim case 110: one that the claim controls is deleted, even without a template.

    One of the same name that nobody controls is kept, and so is a template's.
    """
    async with open_claims(templates=()) as world:
        await world.create(template("e"))
        for name in ("c", "d", "e"):
            world.plane.store.create(claim(name, pool="missing"))
        world.plane.store.create(old_policy("c", controlled_by(get_claim(world, "c"))))
        world.plane.store.create(old_policy("d"))
        await world.settle()
        await world.advance(61.0)
        assert world.find(POLICIES, "c-network-policy") is None
        assert world.find(POLICIES, "d-network-policy") is not None
        assert world.find(POLICIES, "e-network-policy") is not None
        assert len(world.requests("delete", "networkpolicies")) == 1


@pytest.mark.claim_case(109)
async def test_a_claim_on_its_way_out_still_loses_its_old_policy() -> None:
    """Claim case 109: that is the only write it gets."""
    async with open_claims() as world:
        made = world.plane.store.create(claim(metadata={"finalizers": ["example.com/hold"]}))
        world.plane.store.delete(CLAIMS, NS, "c")
        world.plane.store.create(old_policy("c", controlled_by(made)))
        await world.settle()
        await world.patch(CLAIMS, "c", {"metadata": {"labels": {LAUNCH_TYPE: "x"}}})
        await world.advance(3.0)
        assert world.find(POLICIES, "c-network-policy") is None
        assert writes_in_order(world) == ["delete networkpolicies"]


async def test_a_policy_that_a_delete_has_not_found_is_not_deleted_again() -> None:
    """Law: what answered 404 is known to be absent, however often the claim changes."""
    async with open_claims(templates=()) as world:
        world.plane.fail_next("delete", "networkpolicies", 404)
        world.plane.store.create(claim(pool="missing"))
        world.plane.store.create(old_policy("c", controlled_by(get_claim(world))))
        await world.settle()
        await world.advance(61.0)
        for turn in range(3):
            await world.patch(CLAIMS, "c", {"metadata": {"labels": {LAUNCH_TYPE: f"{turn}"}}})
            await world.advance(2.0)
        assert len(world.requests("delete", "networkpolicies")) == 1


def old_policy(name: str, *owners: Json) -> Json:
    """Return a policy as releases of older days made them for each claim."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": f"{name}-network-policy",
            "namespace": NS,
            "ownerReferences": list(owners),
        },
        "spec": {"podSelector": {}},
    }


ALREADY_EXISTS: Json = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "AlreadyExists",
    "message": 'sandboxes.agents.x-k8s.io "c" already exists',
    "code": 409,
}
