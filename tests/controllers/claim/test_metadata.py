"""What a claim may ask for on its Pod, and that it arrives."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from lean_sandbox.local.kinds import Kind
from tests.support.builders import claim, template
from tests.support.extensions import (
    bound_name,
    claim_reconciles,
    get_claim,
    member_names,
    open_claims,
    ready_of,
)
from tests.support.names import CLAIMS, LAUNCH_TYPE
from tests.support.webhooks import add_webhook
from tests.support.world import NS, World

Json = dict[str, Any]
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SNAPSHOT = "podsnapshot.gke.io/ps-name"
# Six annotations that fit a Pod, and five that do not fit the same one.
SIX = {"annotations": {f"example.com/{number}": "x" * 30_000 for number in range(6)}}
FIVE = {"annotations": {f"example.org/{number}": "x" * 30_000 for number in range(5)}}
# The same with labels, which are counted.
LABELS_OF_TEMPLATE = {"labels": {f"example.com/{number}": "" for number in range(600)}}
LABELS_OF_CLAIM = {"labels": {f"sandbox.users.io/{number}": "" for number in range(600)}}
together = pytest.mark.parametrize(
    ("given", "asked", "said"),
    [
        (SIX, FIVE, "spec.podTemplate.metadata.annotations: 330143 bytes"),
        (LABELS_OF_TEMPLATE, LABELS_OF_CLAIM, "spec.podTemplate.metadata.labels: 1202 entries"),
    ],
    ids=["bytes", "entries"],
)


def asking(labels: Json | None = None, annotations: Json | None = None) -> Json:
    """Return a claim with additional metadata for its Pod."""
    return claim(additionalPodMetadata={"labels": labels or {}, "annotations": annotations or {}})


def pod_metadata(world: World, name: str) -> Json:
    """Return the metadata of a Sandbox's Pod template."""
    found: Json = world.get(name)["spec"]["podTemplate"].get("metadata", {})
    return found


@pytest.mark.claim_case(21, 22, 23, 24, 30)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("plain", "v"),
        ("sandbox.users.io/x", "x" * 64),
        ("sandbox.users.io/x", "invalid@value"),
        ("sandbox.users.io/in@valid", "v"),
        ("kubernetes.io/x", "v"),
        ("evilsandbox.users.io/x", "v"),
        ("agents.x-k8s.io/sandbox-template-ref-hash", "v"),
        ("agents.x-k8s.io/sandbox-name-hash", "v"),
        (SAFE_TO_EVICT, "false"),
    ],
)
async def test_a_label_outside_what_is_allowed_binds_nothing(key: str, value: str) -> None:
    """Claim case 21: InvalidMetadata; no Sandbox, no member, no further try."""
    async with open_claims("m1") as world:
        await world.create(asking({key: value}))
        status, reason, message = ready_of(world)
        assert (status, reason) == ("False", "InvalidMetadata")
        prefix = f'invalid additionalPodMetadata: failed to validate label "{key}": '
        assert message.startswith(prefix)
        assert bound_name(world) == ""
        assert member_names(world) == ["m1"]
        before = claim_reconciles(world)
        await world.advance(120.0)
        assert claim_reconciles(world) == before


@pytest.mark.claim_case(25)
async def test_nobody_may_pose_as_the_router() -> None:
    """Claim case 25: the exact words."""
    async with open_claims() as world:
        await world.create(asking({"app": "sandbox-router"}))
        assert ready_of(world)[2] == (
            'invalid additionalPodMetadata: failed to validate label "app": restricted system label'
            ' value: "app"="sandbox-router" is not allowed in AdditionalPodMetadata'
        )


@pytest.mark.claim_case(28)
@pytest.mark.parametrize(
    "key",
    [
        "agents.x-k8s.io/pod-name",
        "extensions.agents.x-k8s.io/a",
        "foo.kubernetes.io/a",
        "k8s.io/a",
    ],
)
async def test_annotations_of_the_system_are_refused(key: str) -> None:
    """Claim case 28: InvalidMetadata."""
    async with open_claims() as world:
        await world.create(asking(annotations={key: "v"}))
        assert ready_of(world)[1] == "InvalidMetadata"
        assert world.find("sandboxes", "c") is None


@pytest.mark.claim_case(24, 27, 28, 29)
async def test_what_is_allowed_reaches_the_pod_of_a_member() -> None:
    """Claim case 27: annotations without a domain, 29: the word on eviction, 24: labels."""
    annotations = {"mine": "1", "foo.x-k8s.io/a": "2", SAFE_TO_EVICT: "false"}
    async with open_claims("m1") as world:
        await world.create(asking({"sub.sandbox.users.io/x": "y"}, annotations))
        assert bound_name(world) == "m1"
        held = pod_metadata(world, "m1")
        assert held["annotations"] == annotations
        assert held["labels"]["sub.sandbox.users.io/x"] == "y"
        await world.advance(3.0)
        on_pod = world.pod("m1")["metadata"]
        assert on_pod["labels"]["sub.sandbox.users.io/x"] == "y"
        assert on_pod["annotations"]["mine"] == "1"


@pytest.mark.claim_case(26)
@pytest.mark.parametrize(
    ("allowed", "key", "expected"),
    [
        (("sandbox.users.io", "custom.company.com"), "custom.company.com/x", "m1"),
        (("custom.company.com",), "sandbox.users.io/x", ""),
    ],
)
async def test_the_allowed_domains_are_the_operators(
    allowed: tuple[str, ...], key: str, expected: str
) -> None:
    """Claim case 26: a list of one's own replaces the default."""
    async with open_claims("m1", allowed_label_domains=allowed) as world:
        await world.create(asking({key: "v"}))
        assert bound_name(world) == expected


@pytest.mark.claim_case(31)
@pytest.mark.parametrize("ready_member", ["m1", ""])
async def test_a_claim_cannot_overrule_its_template(ready_member: str) -> None:
    """Claim case 31: ReconcilerError, warm as cold; the member stays free. The same value is fine.

    Backoff goes on without harm.
    """
    marked = template(metadata={"labels": {"sandbox.users.io/x": "theirs"}})
    names = (ready_member,) if ready_member else ()
    async with open_claims(*names, templates=(marked,)) as world:
        await world.create(asking({"sandbox.users.io/x": "mine"}))
        status, reason, message = ready_of(world)
        assert (status, reason) == ("False", "ReconcilerError")
        assert message == (
            'Error seen: metadata override conflict: label "sandbox.users.io/x" is defined in'
            " template with another value than the claim requests"
        )
        assert member_names(world) == list(names)
        same = {"additionalPodMetadata": {"labels": {"sandbox.users.io/x": "theirs"}}}
        await world.patch(CLAIMS, "c", {"spec": same})
        assert bound_name(world) == (ready_member or "c")


@pytest.mark.claim_case(32)
async def test_a_bound_claim_edited_into_nonsense_keeps_its_sandbox() -> None:
    """Claim case 32: InvalidMetadata, the name stays, the Sandbox is not touched; and recovers."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        before = world.get("m1")
        bad = {"additionalPodMetadata": {"labels": {"plain": "v"}}}
        await world.patch(CLAIMS, "c", {"spec": bad})
        assert ready_of(world)[1] == "InvalidMetadata"
        assert bound_name(world) == "m1"
        assert world.get("m1") == before
        await world.patch(CLAIMS, "c", {"spec": {"additionalPodMetadata": None}})
        assert ready_of(world)[0] == "True"


@together
@pytest.mark.parametrize("names", [("m1",), ()], ids=["warm", "cold"])
async def test_what_fits_a_pod_but_not_beside_the_templates_own_binds_nothing(
    given: Json, asked: Json, said: str, names: tuple[str, ...]
) -> None:
    """InvalidMetadata, which names what is too much; no member is taken, no Sandbox created."""
    async with open_claims(*names, templates=(template(metadata=given),)) as world:
        await world.create(claim(additionalPodMetadata=asked))
        await world.advance(60.0)
        assert ready_of(world)[:2] == ("False", "InvalidMetadata")
        assert said in ready_of(world)[2]
        assert bound_name(world) == ""
        assert member_names(world) == list(names)
        assert world.find("sandboxes", "c") is None
        assert world.asked()["get sandboxes"] == 0
        await world.patch(CLAIMS, "c", {"spec": {"additionalPodMetadata": None}})
        assert bound_name(world) == ("m1" if names else "c")


@together
async def test_a_bound_claim_edited_into_too_much_keeps_its_pod_as_it_is(
    given: Json, asked: Json, said: str
) -> None:
    """The Sandbox runs on as it was, and the claim says why."""
    async with open_claims("m1", templates=(template(metadata=given),)) as world:
        await world.create(claim())
        await world.advance(3.0)
        before = world.get("m1")
        await world.patch(CLAIMS, "c", {"spec": {"additionalPodMetadata": asked}})
        await world.advance(60.0)
        assert ready_of(world)[:2] == ("False", "InvalidMetadata")
        assert said in ready_of(world)[2]
        assert bound_name(world) == "m1"
        assert world.get("m1") == before
        await world.patch(CLAIMS, "c", {"spec": {"additionalPodMetadata": None}})
        assert ready_of(world)[0] == "True"


@pytest.mark.claim_case(17)
async def test_edits_and_removals_reach_a_bound_sandbox_at_once() -> None:
    """Claim case 17: an annotation set on the claim comes and goes with the claim's word."""
    async with open_claims("m1") as world:
        await world.create(claim())
        for value in ("one", "two", None):
            extra = {"additionalPodMetadata": {"annotations": {SNAPSHOT: value}}}
            await world.patch(CLAIMS, "c", {"spec": extra})
            held = pod_metadata(world, "m1").get("annotations", {})
            assert held.get(SNAPSHOT) == value
        assert ready_of(world)[0] == "True"
        assert get_claim(world)["status"]["sandbox"]["name"] == "m1"


async def test_a_stamp_that_a_webhook_puts_back_makes_no_loop() -> None:
    """The claim is edited while its Pod is not ready; each stamp that goes brings a new one."""
    stamps = itertools.count()
    async with open_claims("m1") as world:

        def stamp(kind: Kind, stored: Json) -> None:
            if kind.plural == "sandboxes":
                meta = stored["spec"]["podTemplate"].setdefault("metadata", {})
                annotations = meta.get("annotations") or {}
                meta["annotations"] = {"webhook.io/at": str(next(stamps))} | annotations

        world.net_may_catch = True
        add_webhook(world.plane, stamp)
        await world.create(claim())
        await world.run_pod("m1", ready=False)
        assert ready_of(world)[0] == "False"
        world.forget_requests()
        spec = asking({"sandbox.users.io/team": "blue"})["spec"]
        world.plane.store.patch(CLAIMS, NS, "c", {"spec": spec})
        for _ in range(300):
            await world.moments(60)
            await world.clock.advance(0.1)
        assert world.writes()["patch sandboxes"] < 10


async def test_a_launch_type_that_a_webhook_takes_away_is_written_once() -> None:
    """However often the claim is looked at; a Sandbox of older days has none."""

    def strip(kind: Kind, stored: Json) -> None:
        if kind.plural == "sandboxes":
            stored["metadata"].get("labels", {}).pop(LAUNCH_TYPE, None)

    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        world.forget_requests()
        add_webhook(world.plane, strip)
        await world.patch("sandboxes", "m1", {"metadata": {"labels": {LAUNCH_TYPE: None}}})
        for number in range(5):
            await world.patch(CLAIMS, "c", {"metadata": {"labels": {"turn": f"{number}"}}})
        assert LAUNCH_TYPE not in world.get("m1")["metadata"]["labels"]
        assert world.writes()["patch sandboxes"] == 1
