"""What is written at the take-over is what ``manifests/migration.md`` says, and only once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.controlplane.handover import PAGE, SETTINGS, everything, room_of
from tests.controlplane.plugin import REAL
from tests.controlplane.reference import DOMAIN, OLD, Reference, owner
from tests.controlplane.scene import SWIFT, Scene, Spent, open_stage, permitted
from tests.controlplane.server import RealServer

pytestmark = REAL

Json = dict[str, Any]


async def pooled(made: Reference) -> Json:
    """Make a template and a pool of one member ``m``."""
    await made.template("t")
    pool = await made.pool("p", "t", 1, "OnReplenish")
    await made.member(pool, "m")
    return pool


async def without_label(made: Reference) -> None:
    """Before the template got its label."""
    await made.template("t")
    change = {"metadata": {"labels": {f"{DOMAIN}/sandbox-template-ref-hash": None}}}
    await made.scene.patch("sandboxtemplates", "t", change)


async def without_policy(made: Reference) -> None:
    """Before there were policies of templates."""
    await made.template("t")
    await made.scene.delete("networkpolicies", "t-network-policy")


async def with_other_rules(made: Reference) -> None:
    """The rules of another release, or of an edit that nobody saw."""
    await made.template("t")
    await made.scene.patch("networkpolicies", "t-network-policy", {"spec": {"egress": None}})


async def with_a_policy_of_its_own(made: Reference) -> None:
    """Before policies were those of templates."""
    claim = await made.claim("c", await pooled(made), sandbox="s")
    await made.policy("c-network-policy", owner(claim, OLD), {"podSelector": {}})


async def named_by_label(made: Reference) -> None:
    """Before the annotation took the place of the label."""
    await made.claim("c", await pooled(made), sandbox="s")
    key = f"{DOMAIN}/sandbox-name"
    change = {"metadata": {"labels": {key: "s"}, "annotations": {key: None}}}
    await made.scene.patch("sandboxclaims", "c", change)


async def never_stamped(made: Reference) -> None:
    """Before claims were stamped."""
    await made.claim("c", await pooled(made), sandbox="s")
    change = {"metadata": {"annotations": {f"{DOMAIN}/claim-first-ready-at": None}}}
    await made.scene.patch("sandboxclaims", "c", change)


async def without_address_in_the_claim(made: Reference) -> None:
    """Before v1.0."""
    await made.claim("c", await pooled(made), sandbox="s", service=True)
    await made.tell("sandboxclaims", "c", {"sandbox": {"serviceFQDN": None}})


async def claimed_without_launch_type(made: Reference) -> None:
    """Before Sandboxes said how they were launched."""
    await made.claim("c", await pooled(made), sandbox="s")
    change = {"metadata": {"labels": {f"{DOMAIN}/launch-type": None}}}
    await made.scene.patch("sandboxes", "s", change)


async def pod_of_a_claim_without_its_uid(made: Reference) -> None:
    """Before the Pods of claims said whose they are."""
    await made.claim("c", await pooled(made), sandbox="s")
    change = {"metadata": {"labels": {f"{DOMAIN}/claim-uid": None}}}
    await made.scene.patch("pods", "s", change)


async def member_without_launch_type(made: Reference) -> None:
    """The same, in a pool."""
    await pooled(made)
    change = {"metadata": {"labels": {f"{DOMAIN}/launch-type": None}}}
    await made.scene.patch("sandboxes", "m", change)


async def without_node(made: Reference) -> None:
    """Before the status named the node."""
    await made.sandbox("s")
    await made.tell("sandboxes", "s", {"nodeName": None})


async def asleep_with_a_pod_name(made: Reference) -> None:
    """The reference stopped between deleting the Pod and forgetting its name."""
    await made.sandbox("s", operatingMode="Suspended")
    change = {"metadata": {"annotations": {f"{DOMAIN}/pod-name": "s"}}}
    await made.scene.patch("sandboxes", "s", change)


async def pod_without_a_label(made: Reference) -> None:
    """An edit that nobody saw."""
    await pooled(made)
    change = {"metadata": {"labels": {f"{DOMAIN}/warm-pool-sandbox": None}}}
    await made.scene.patch("pods", "m", change)


async def pool_without_generation(made: Reference) -> None:
    """Before pools said which generation they counted for."""
    await pooled(made)
    await made.tell("sandboxwarmpools", "p", {"observedGeneration": None})


ONCE: dict[str, Callable[[Reference], Awaitable[None]]] = {
    "a template without the hash of its name": without_label,
    "a template without its NetworkPolicy": without_policy,
    "a NetworkPolicy with other rules than its template's": with_other_rules,
    "a NetworkPolicy of one claim": with_a_policy_of_its_own,
    "a claim that names its Sandbox in a label": named_by_label,
    "a Ready claim without `claim-first-ready-at`": never_stamped,
    "a claim's status without `serviceFQDN`": without_address_in_the_claim,
    "a claimed Sandbox without `launch-type`": claimed_without_launch_type,
    "a Pod of a claim without `claim-uid`": pod_of_a_claim_without_its_uid,
    "a member without `launch-type`": member_without_launch_type,
    "a Sandbox's status without `nodeName`": without_node,
    "a suspended Sandbox with `pod-name`": asleep_with_a_pod_name,
    "a Pod without a label of its Sandbox": pod_without_a_label,
    "a pool's status without `observedGeneration`": pool_without_generation,
}


def promised() -> dict[str, Counter[str]]:
    """Return what the page says is written for what is found."""
    section = PAGE.read_text().partition("## Written once")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    return {row[0]: Counter(row[-1].strip("`").split("`, `")) for row in rows[1:]}


async def test_what_is_missing_is_written_once(real_server: RealServer, tmp_path: Path) -> None:
    """Each lack costs what the page says; Pods and Sandboxes stay; a second start is silent."""
    async with open_stage(real_server, tmp_path, SWIFT) as stage, AsyncExitStack() as stack:
        scenes = {what: await stack.enter_async_context(room_of(stage)) for what in ONCE}
        for what, build in ONCE.items():
            await build(Reference(scenes[what]))
        before = {what: await everything(scene) for what, scene in scenes.items()}
        first, second = await twice(real_server, tmp_path, scenes)
        assert {what: spent.writes for what, spent in first.items()} == promised()
        assert {what: spent.writes for what, spent in second.items()} == {what: {} for what in ONCE}
        for what, scene in scenes.items():
            after = await everything(scene)
            for name, held in before[what].items():
                if name != "networkpolicies c-network-policy":
                    assert after[name]["metadata"]["uid"] == held["metadata"]["uid"]


async def twice(
    server: RealServer, folder: Path, scenes: dict[str, Scene]
) -> list[dict[str, Spent]]:
    """Start the controller twice and return what each start cost in each namespace."""
    found = []
    for _ in range(2):
        for scene in scenes.values():
            scene.begin()
        async with permitted(server, folder, SETTINGS):
            *others, last = scenes.items()
            # What is written to claims behind everything else comes last.
            spent = {last[0]: await last[1].spent()}
            found.append(spent | {what: scene.spent_so_far() for what, scene in others})
    assert all(not spent.refused for start in found for spent in start.values())
    return found
