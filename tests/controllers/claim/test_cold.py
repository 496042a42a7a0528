"""A claim whose pool has nothing to give gets a Sandbox of its own; and what stands in the way."""

from __future__ import annotations

from typing import Any

import pytest

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
    CLAIM_UID,
    CLAIMS,
    LAUNCH_TYPE,
    POOLS,
    REF_HASH,
    SANDBOXES,
    TEMPLATES,
)
from tests.support.world import NS, condition

Json = dict[str, Any]


@pytest.mark.claim_case(1, 58)
async def test_an_empty_pool_gives_a_new_sandbox_of_the_claims_name() -> None:
    """Claim case 1: marked as cold, owned by the claim, told with an Event; 58: at once."""
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
async def test_a_missing_pool_is_told_after_a_get() -> None:
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


@pytest.mark.claim_case(14, 15, 119)
@pytest.mark.parametrize(
    ("maker", "on_pod"), [("go-client", "go-client"), ("", ""), ("evil", "unknown")]
)
async def test_trace_and_maker_are_copied(maker: str, on_pod: str) -> None:
    """Claim case 14: the trace as it stands; 15: created-by on both levels, or on neither.

    119: a word that nobody knows is kept on the Sandbox; its Pod says unknown.
    """
    labels = {"agents.x-k8s.io/created-by": maker} if maker else {}
    annotations = {"opentelemetry.io/trace-context": "{}"}
    async with open_claims() as world:
        await world.create(claim(metadata={"labels": labels, "annotations": annotations}))
        made = world.get("c")
        inner = made["spec"]["podTemplate"]["metadata"]["labels"]
        for held in (made["metadata"]["labels"], inner):
            assert held.get("agents.x-k8s.io/created-by", "") == maker
        assert world.pod("c")["metadata"]["labels"].get("agents.x-k8s.io/created-by", "") == on_pod
        assert made["metadata"]["annotations"]["opentelemetry.io/trace-context"] == "{}"


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


@pytest.mark.claim_case(5, 17, 18)
@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize(
    ("gone", "reason", "message"),
    [
        (POOLS, "WarmPoolNotFound", 'SandboxWarmPool "pool" not found'),
        (
            TEMPLATES,
            "TemplateNotFound",
            'failed to get template for metadata propagation: SandboxTemplate "tpl" not found',
        ),
    ],
)
async def test_a_bound_claim_says_what_is_missing_where_metadata_has_to_be_passed_on(
    gone: str,
    reason: str,
    message: str,
    is_asked: bool,  # noqa: FBT001
) -> None:
    """Claim case 18: it asks for some, or 17: is edited to do so; the Sandbox stays bound."""
    asked: Json = {"additionalPodMetadata": {"annotations": {"mine": "1"}}}
    async with open_claims("m1") as world:
        await world.create(claim(**asked) if is_asked else claim())
        await world.advance(3.0)
        await world.delete(gone, "pool" if gone == POOLS else "tpl")
        edit = {"lifecycle": {"shutdownPolicy": "Delete"}} if is_asked else asked
        await world.patch(CLAIMS, "c", {"spec": edit})
        assert ready_of(world) == ("False", reason, message)
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


@pytest.mark.claim_case(19, 20)
@pytest.mark.parametrize("verb", ["get", "patch"])
async def test_metadata_that_cannot_be_passed_on_is_an_error_of_a_bound_claim(verb: str) -> None:
    """Claim case 19: ReconcilerError, the name is kept; the next reconcile makes good.

    20: nothing else is taken or made.
    """
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        await world.advance(3.0)
        world.plane.fail_next(verb, "sandboxes", 500)
        extra = {"annotations": {"mine": "1"}}
        await world.patch(CLAIMS, "c", {"spec": {"additionalPodMetadata": extra}})
        status, reason, message = ready_of(world)
        assert (status, reason) == ("False", "ReconcilerError")
        assert message.startswith('Error seen: failed to patch sandbox metadata for claim "c": ')
        assert bound_name(world) == "m1"
        assert owner_of(world, "m2") == "SandboxWarmPool/pool"
        assert world.find("sandboxes", "c") is None
        await world.advance(1.0)
        assert ready_of(world)[0] == "True"
        assert world.get("m1")["spec"]["podTemplate"]["metadata"]["annotations"]["mine"] == "1"
