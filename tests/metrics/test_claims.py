"""What is counted and measured of claims, and when it is not."""

from __future__ import annotations

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.model.times import format_rfc3339, parse_rfc3339
from tests.metrics.scrape import Scraped, scraping
from tests.support.builders import claim, pool, template
from tests.support.clock import EPOCH, FakeClock
from tests.support.extensions import add_member, failed, get_claim, open_claims, ready_of, settings
from tests.support.names import CLAIMS
from tests.support.world import NS, World, open_world

CREATIONS = "agent_sandbox_claim_creation_total"
CREATION = "agent_sandbox_creation_latency_ms"
WEBHOOK = "agent_sandbox_claim_startup_latency_ms"
CONTROLLER = "agent_sandbox_claim_controller_startup_latency_ms"
STAGES = "lean_sandbox_claim_stage_seconds"
CLIENT = "agent_sandbox_client_claim_startup_latency_ms"
READY_AT = "agents.x-k8s.io/claim-first-ready-at"
REQUESTED_AT = "agents.x-k8s.io/client-first-requested-at"
WEBHOOK_AT = "agents.x-k8s.io/webhook-first-observed-at"
SEEN_AT = "agents.x-k8s.io/controller-first-observed-at"
# The members are made Ready two seconds before the tests begin; claims arrive at this moment.
NOW = "2026-01-02T03:04:07Z"
REQUESTED = {
    REQUESTED_AT: "2026-01-02T03:04:06.500000+00:00",
    WEBHOOK_AT: "2026-01-02T03:04:06.75Z",
}


def samples(found: Scraped) -> dict[str, float]:
    """Return how many values each latency has."""
    return {name: found.count(name) for name in (WEBHOOK, CONTROLLER, CLIENT, CREATION)}


def ready_at(world: World) -> str | None:
    """Return the annotation that says when the claim was ready first."""
    held: str | None = get_claim(world)["metadata"].get("annotations", {}).get(READY_AT)
    return held


@pytest.mark.claim_case(114)
async def test_first_readiness_is_measured_from_every_beginning() -> None:
    """Case 114: one sample each for client, webhook, controller and the Sandbox's own creation."""
    async with open_claims("m1") as world:
        await world.create(claim(metadata={"annotations": REQUESTED}))
        await world.advance(2.0)
        found = await scraping(world)
        stamped = ready_at(world)
    assert samples(found) == {WEBHOOK: 1, CONTROLLER: 1, CLIENT: 1, CREATION: 1}
    labels = {"launch_type": "warm", "sandbox_template": "tpl"}
    assert found.value(f"{CLIENT}_sum", **labels) == 500
    assert found.value(f"{WEBHOOK}_sum", **labels) == 250
    assert found.value(f"{CONTROLLER}_sum", **labels) == 0
    assert found.value(f"{CLIENT}_bucket", **labels, le="250") == 0
    assert found.value(f"{CLIENT}_bucket", **labels, le="500") == 1
    assert stamped == NOW


@pytest.mark.claim_case(114)
@pytest.mark.parametrize(
    ("annotations", "missing"),
    [
        ({}, (WEBHOOK, CLIENT)),
        ({WEBHOOK_AT: "", REQUESTED_AT: "1713689880"}, (WEBHOOK, CLIENT)),
        (dict.fromkeys((WEBHOOK_AT, REQUESTED_AT), "2027-01-01T00:00:00Z"), (WEBHOOK, CLIENT)),
        ({**REQUESTED, SEEN_AT: "yesterday"}, (CONTROLLER,)),
    ],
)
async def test_a_beginning_that_says_nothing_is_left_out(
    annotations: dict[str, str], missing: tuple[str, ...]
) -> None:
    """Case 114: absent, unreadable and future times give no sample; the claim is stamped anyway."""
    async with open_claims("m1") as world:
        await world.create(claim(metadata={"annotations": annotations}))
        await world.advance(2.0)
        found = await scraping(world)
        stamped = ready_at(world)
    wanted = {name: float(name not in missing) for name in (WEBHOOK, CONTROLLER, CLIENT, CREATION)}
    assert samples(found) == wanted
    assert stamped == NOW


async def test_a_claim_whose_status_fails_first_is_measured_once() -> None:
    """Its annotations may be there before its status; one sample each follows the status."""
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "sandboxclaims/status", 500)
        await world.create(claim())
        await world.advance(2.0)
        assert ready_of(world)[0] == "True"
        found = await scraping(world)
        assert ready_at(world) == NOW
    assert samples(found) == {WEBHOOK: 0, CONTROLLER: 1, CLIENT: 0, CREATION: 1}


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
async def test_the_controllers_own_time_counts_from_its_first_sight(ahead_s: float) -> None:
    """A claim that waits for its member is measured from when it was seen, not from the binding.

    It is the server's time that counts, whatever the wall clock is set to meanwhile.
    """
    async with open_claims("m1", ready=False) as world:
        requested = {REQUESTED_AT: format_rfc3339(EPOCH)}
        await world.create(claim(metadata={"annotations": requested}))
        world.clock.set_wall(ahead_s)
        await world.advance(1.5)
        await world.run_pod("m1")
        await world.advance(5.0)
        found = await scraping(world)
        assert ready_at(world) == "2026-01-02T03:04:06.5Z"
    labels = {"launch_type": "warm", "sandbox_template": "tpl"}
    assert found.value(f"{CONTROLLER}_sum", **labels) == 1500
    assert found.value(f"{CLIENT}_sum", **labels) == 1500


@pytest.mark.claim_case(73)
async def test_latencies_need_no_annotations_of_ours() -> None:
    """Without observability annotations the first sight is remembered, though never written."""
    async with open_claims("m1", disable_claim_observability_annotations=True) as world:
        await world.create(claim(metadata={"annotations": REQUESTED}))
        await world.advance(2.0)
        found = await scraping(world)
        held = get_claim(world)["metadata"]["annotations"]
    assert samples(found)[CONTROLLER] == 1
    assert SEEN_AT not in held


@pytest.mark.claim_case(115)
@pytest.mark.parametrize("pause_s", [0.2, 5.0])
async def test_becoming_ready_again_is_not_measured(pause_s: float) -> None:
    """Case 115: Ready, not Ready, Ready gives one sample, also before the stamp was written."""
    async with open_claims("m1") as world:
        await world.create(claim(metadata={"annotations": REQUESTED}))
        await world.advance(pause_s)
        await world.run_pod("m1", ready=False)
        await world.advance(pause_s / 4)
        await world.run_pod("m1")
        await world.advance(5.0)
        found = await scraping(world)
        stamped = ready_at(world)
    assert samples(found) == {WEBHOOK: 1, CONTROLLER: 1, CLIENT: 1, CREATION: 1}
    assert stamped == NOW


@pytest.mark.claim_case(116)
async def test_a_stamp_that_fails_is_repeated_and_measured_once() -> None:
    """Case 116: the annotation is written by a later try, with its own time; the count stays 1.

    That the claim is reconciled meanwhile, as Ready already, changes nothing of it.
    """
    async with open_claims("m1") as world:
        world.plane.fail_next("patch", "sandboxclaims", 500, times=2)
        await world.create(claim(metadata={"annotations": REQUESTED}))
        await world.patch(CLAIMS, "c", {"metadata": {"labels": {"any": "edit"}}})
        await world.advance(10.0)
        found = await scraping(world)
        stamped = ready_at(world)
        assert failed(world) == ["500 patch sandboxclaims c"] * 2
    assert samples(found)[CLIENT] == 1
    assert stamped == NOW


@pytest.mark.claim_case(117)
@pytest.mark.parametrize("told", ["unknown", NOW])
async def test_a_claim_that_was_ready_before_is_stamped_and_not_measured(told: str) -> None:
    """Case 117: what another process made Ready without a stamp gets ``unknown`` and no sample.

    Nor is one measured that it stamped, when that is Ready again.
    """

    def furnish(plane: ControlPlane) -> None:
        for one in (template(), pool(replicas=1)):
            plane.store.create(one)
        add_member(plane, "m1")

    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        async with open_world(settings(), plane=plane, prepare=furnish) as world:
            await world.run_pod("m1")
            await world.advance(2.0)
            await world.create(claim(metadata={"annotations": REQUESTED}))
            assert ready_of(world)[0] == "True"
            if told == NOW:
                await world.run_pod("m1", ready=False)
        if told == "unknown":
            plane.store.patch(CLAIMS, NS, "c", {"metadata": {"annotations": {READY_AT: None}}})
        async with open_world(settings(), plane=plane) as world:
            await world.run_pod("m1")
            await world.advance(5.0)
            assert ready_of(world)[0] == "True"
            found = await scraping(world)
            stamped = ready_at(world)
    assert samples(found) == {WEBHOOK: 0, CONTROLLER: 0, CLIENT: 0, CREATION: 0}
    assert stamped == told


@pytest.mark.claim_case(118)
async def test_nothing_is_remembered_of_claims_that_are_ready_or_gone() -> None:
    """Case 118: first sights are forgotten once they were used, and with their claim."""
    async with open_claims("m1") as world:
        claims = world.whole.claims
        assert claims is not None
        states = claims._states
        await world.create(claim())
        await world.create(claim("waits", pool="nowhere"))
        await world.advance(5.0)
        waiting = world.find(CLAIMS, "waits")
        assert waiting is not None
        assert [state.uid for state in states.values()] == [waiting["metadata"]["uid"]]
        await world.delete(CLAIMS, "waits")
        assert states == {}


@pytest.mark.claim_case(119)
@pytest.mark.parametrize(
    ("creator", "told"), [("python-client", "python-client"), ("evil", "unknown")]
)
async def test_an_adoption_is_counted_with_its_pool(creator: str, told: str) -> None:
    """Case 119: launch type, pool, the member's readiness; and who asked, of those that are known.

    The label of a counter takes no value that users can make up.
    """
    async with open_claims("m1") as world:
        labels = {"agents.x-k8s.io/created-by": creator}
        await world.create(claim(metadata={"labels": labels}))
        found = await scraping(world)
        assert labels.items() <= world.get("m1")["metadata"]["labels"].items()
    wanted = {
        "namespace": "ns",
        "sandbox_template": "tpl",
        "launch_type": "warm",
        "warmpool_name": "pool",
        "pod_condition": "ready",
        "created_by": told,
    }
    assert found.find(CREATIONS) == [(wanted, 1.0)]


async def test_a_cold_start_is_counted_for_the_pool_that_was_asked() -> None:
    """A claim that finds no member counts as cold and not ready, once."""
    async with open_claims() as world:
        await world.create(claim())
        await world.run_pod("c")
        await world.advance(5.0)
        found = await scraping(world)
    ((labels, value),) = found.find(CREATIONS)
    assert value == 1.0
    assert (labels["launch_type"], labels["pod_condition"]) == ("cold", "not_ready")
    assert (labels["warmpool_name"], labels["sandbox_template"]) == ("pool", "tpl")
    assert found.count(CREATION, launch_type="cold", sandbox_template="tpl") == 1


async def test_members_without_a_template_have_the_claims_word_for_it() -> None:
    """The sentinel on metrics of claims is ``__unknown__``, unlike that of Sandboxes."""
    async with open_claims("m1") as world:
        note = {"metadata": {"annotations": {"agents.x-k8s.io/sandbox-template-ref": None}}}
        await world.patch("sandboxes", "m1", note)
        await world.create(claim())
        await world.advance(2.0)
        found = await scraping(world)
    assert {one["sandbox_template"] for one, _ in found.find(CREATIONS)} == {"__unknown__"}


async def test_each_step_of_a_warm_claim_is_timed() -> None:
    """The adoption, the status and the Pod's metadata, each once; a later reconcile adds none."""
    async with open_claims("m1") as world:
        more = {"annotations": {"example.com/team": "a"}}
        await world.create(claim(additionalPodMetadata=more))
        await world.advance(5.0)
        await world.patch(CLAIMS, "c", {"metadata": {"labels": {"mine": "x"}}})
        found = await scraping(world)
    steps = {labels["stage"]: n for labels, n in found.find(f"{STAGES}_count")}
    assert steps == {"adopt": 1.0, "status": 1.0, "pod_metadata": 1.0}


HOUR_AGO = "2026-01-02T02:04:05Z"


@pytest.mark.parametrize("stamp", ["0001-01-02T00:00:00Z", "1970-01-01T00:00:00Z", HOUR_AGO])
@pytest.mark.parametrize("is_seen_before", [False, True])
async def test_no_claim_waits_for_longer_than_it_exists(
    stamp: str, *, is_seen_before: bool
) -> None:
    """Whatever its user has stamped, what all tenants share gets at most the age of the claim."""
    stamps = dict.fromkeys((WEBHOOK_AT, REQUESTED_AT, SEEN_AT), stamp)
    body = claim(metadata={"annotations": stamps})
    before = (body,) if is_seen_before else ()
    async with open_claims("m1", before=before) as world:
        if not is_seen_before:
            await world.create(body)
        await world.advance(5.0)
        found = await scraping(world)
        created = parse_rfc3339(get_claim(world)["metadata"]["creationTimestamp"])
        most_ms = (world.clock.now() - created).total_seconds() * 1000.0
    labels = {"launch_type": "warm", "sandbox_template": "tpl"}
    for name in (WEBHOOK, CLIENT, CONTROLLER):
        assert found.value(f"{name}_count", **labels) == 1
        assert 0 <= found.value(f"{name}_sum", **labels) <= most_ms < 60_000


async def test_the_stamp_of_a_process_before_this_one_counts() -> None:
    """A claim that waits since before a restart is measured from then, not from the restart."""
    clock = FakeClock()

    def furnish(plane: ControlPlane) -> None:
        plane.store.create(template())
        plane.store.create(pool(replicas=0))
        plane.store.create(claim())

    async with ControlPlane(LocalSettings(), clock=clock) as plane:
        async with open_world(settings(), plane=plane, clock=clock, prepare=furnish) as world:
            await world.advance(60.0)
            assert SEEN_AT in get_claim(world)["metadata"]["annotations"]
        async with open_world(settings(), plane=plane, clock=clock) as world:
            await world.run_pod("c")
            await world.advance(5.0)
            found = await scraping(world)
    labels = {"launch_type": "cold", "sandbox_template": "tpl"}
    assert found.value(f"{CONTROLLER}_sum", **labels) >= 60_000


@pytest.mark.parametrize("when", ["9999-12-31T23:59:59Z", "2030-01-01T00:00:00Z"])
async def test_a_forged_time_of_readiness_is_not_later_than_now(when: str) -> None:
    """Whoever may write a status cannot add years to how long Sandboxes take."""
    async with open_claims("m1") as world:
        held = world.get("m1")["status"]["conditions"]
        forged = [{**one, "lastTransitionTime": when} for one in held]
        await world.patch(
            "sandboxes", "m1", {"status": {"conditions": forged}}, subresource="status"
        )
        await world.create(claim())
        await world.advance(5.0)
        found = await scraping(world)
    assert sum(value for _, value in found.find(f"{CREATION}_count")) == 1
    assert sum(value for _, value in found.find(f"{CREATION}_sum")) < 60_000
