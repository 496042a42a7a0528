"""A mutating policy puts back what the controller writes: the controller leaves it at that.

It writes again when the object changes or something else is wanted of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, cycle
from typing import Any

import pytest

from lean_sandbox.local.kinds import Kind
from tests.support.builders import claim, placed, pool
from tests.support.extensions import bound_name, members, open_claims, open_pools
from tests.support.names import (
    CLAIMS,
    CREATED_BY,
    LAUNCH_TYPE,
    NAME_HASH,
    POD_NAME,
    REF_HASH,
    TEMPLATES,
)
from tests.support.volumes import WHOLE
from tests.support.webhooks import add_webhook
from tests.support.world import World, condition, open_world, sandbox

Json = dict[str, Any]
Force = Callable[[Json], None]
# As many writes as the reference controller makes before it waits.
MOST = 4
# The safety net looks at least six times.
QUARTER_S = 900.0
NOTE = "example.com/team"
TEAM = {"metadata": {"labels": {"team": "blue"}}}
PORT = {"containers": [{"name": "main", "image": "busybox", "ports": [{"containerPort": 80}]}]}
BODY = sandbox(spec=WHOLE, template=TEAM, pod_spec=PORT)


class Policy:
    """Forces something on the objects of a kind, while it is on.

    With ``stamps``, no two answers are alike: each has another annotation.
    """

    def __init__(self, world: World, plural: str, force: Force, *, stamps: bool = False) -> None:
        self.is_on = True
        self._plural = plural
        self._force = force
        self._stamps = stamps
        self._seen = 0
        add_webhook(world.plane, self._see)

    def _see(self, kind: Kind, stored: Json) -> None:
        if not self.is_on or kind.plural != self._plural:
            return
        self._force(stored)
        self._seen += 1
        if self._stamps:
            annotations = stored["metadata"].setdefault("annotations", {})
            annotations["example.com/stamp"] = str(self._seen)


def label(key: str, value: str | None) -> Force:
    """Return what forces a label, or takes it away."""

    def force(stored: Json) -> None:
        labels = stored["metadata"].setdefault("labels", {})
        labels.pop(key, None)
        if value is not None:
            labels[key] = value

    return force


def take_labels(stored: Json) -> None:
    """Take away all labels."""
    stored["metadata"].pop("labels", None)


def disown(stored: Json) -> None:
    """Take away all owners."""
    stored["metadata"]["ownerReferences"] = []


def rename_port(stored: Json) -> None:
    """Give the port of a Service another name."""
    for port in stored["spec"].get("ports") or ():
        port["name"] = "forced"


def select_nobody(stored: Json) -> None:
    """Let a Service select other Pods."""
    stored["spec"]["selector"] = {"app": "forced"}


def name_pod(stored: Json) -> None:
    """Let a Sandbox name a Pod that is not there."""
    stored["metadata"].setdefault("annotations", {})[POD_NAME] = "nobody"


def anew(force: Callable[[Json, str], None]) -> Force:
    """Return what forces another value each time."""
    numbers = count()
    return lambda stored: force(stored, f"v{next(numbers)}")


def select_another(stored: Json, key: str) -> None:
    """Let a Service select by another label."""
    stored["spec"]["selector"] = {key: "forced"}


def name_another(stored: Json, name: str) -> None:
    """Let a Sandbox name another Pod that is not there."""
    stored["metadata"].setdefault("annotations", {})[POD_NAME] = name


def label_anew(stored: Json, value: str) -> None:
    """Give a Pod another label."""
    stored["metadata"].setdefault("labels", {})["team"] = value


def take_by_turns() -> Force:
    """Return what takes a label away from a Pod, and its annotations the next time."""
    takes: Iterator[Force] = cycle(
        (label("team", None), lambda stored: stored["metadata"].update(annotations={}))
    )

    def take(stored: Json) -> None:
        next(takes)(stored)

    return take


def free_egress(stored: Json) -> None:
    """Take the rules for outgoing traffic out of a NetworkPolicy."""
    stored["spec"]["policyTypes"] = ["Ingress"]


def name_of(plural: str) -> str:
    """Return the name of the one object of a kind."""
    return "data-sb-1" if plural == "persistentvolumeclaims" else "sb-1"


children = pytest.mark.parametrize(
    ("plural", "force", "is_fatal"),
    [
        pytest.param("services", rename_port, False, id="port"),
        pytest.param("services", select_nobody, False, id="selector"),
        pytest.param("services", disown, True, id="owner of Service"),
        pytest.param("pods", label("team", "forced"), False, id="label"),
        pytest.param("pods", label("team", None), False, id="no label"),
        pytest.param("pods", disown, True, id="owner of Pod"),
        pytest.param("persistentvolumeclaims", disown, True, id="owner of claim"),
        pytest.param("sandboxes", name_pod, False, id="name of the Pod"),
        pytest.param("services", anew(select_another), False, id="another selector each time"),
        pytest.param("pods", anew(label_anew), False, id="another label each time"),
        pytest.param("sandboxes", anew(name_another), False, id="another name each time"),
    ],
)


@children
@pytest.mark.parametrize("is_ready", [True, False])
@pytest.mark.parametrize("stamps", [True, False])
async def test_what_is_put_back_is_not_written_again_and_again(
    plural: str, force: Force, *, is_fatal: bool, is_ready: bool, stamps: bool
) -> None:
    """At most four writes in fifteen minutes, none by the safety net, and no status flaps."""
    async with open_world() as world:
        await world.create(BODY)
        Policy(world, plural, force, stamps=stamps)
        if is_ready:
            await world.run_pod()
        await world.patch(plural, name_of(plural), {"metadata": {"annotations": {"a": "b"}}})
        world.forget_requests()
        await world.advance(QUARTER_S)
        assert world.asked()[f"patch {plural}"] <= MOST
        assert world.asked()["patch sandboxes/status"] <= 2
        ready = condition(world.get(), "Ready")
        if is_fatal:
            assert ready["reason"] == "ReconcilerError"
            assert "the server drops its controller reference" in ready["message"]
        else:
            assert (ready["status"] == "True") == is_ready


async def test_policies_for_two_children_cost_no_more_than_one_for_each() -> None:
    """What each lacks in its turn differs from what was written last: the two keep no loop up."""
    async with open_world() as world:
        await world.ready_sandbox(BODY)
        Policy(world, "pods", take_by_turns())
        Policy(world, "services", anew(select_another))
        world.forget_requests()
        for plural in ("pods", "services"):
            world.plane.store.patch(
                plural, "ns", "sb-1", {"metadata": {"labels": {NAME_HASH: "x"}}}
            )
        await world.advance(QUARTER_S)
        assert world.asked()["patch pods"] <= MOST
        assert world.asked()["patch services"] <= MOST


@children
async def test_once_a_policy_is_gone_a_change_has_it_put_right(
    plural: str, force: Force, *, is_fatal: bool
) -> None:
    """The next change of the object is followed by the write that was undone."""
    del is_fatal
    async with open_world() as world:
        await world.ready_sandbox(BODY)
        before = world.find(plural, name_of(plural))
        policy = Policy(world, plural, force)
        await world.patch(plural, name_of(plural), {"metadata": {"labels": {"example.com/a": "b"}}})
        await world.advance(QUARTER_S)
        assert world.find(plural, name_of(plural)) != before
        policy.is_on = False
        await world.patch(plural, name_of(plural), {"metadata": {"labels": {"example.com/a": "c"}}})
        if plural == "sandboxes":
            await world.patch(plural, "sb-1", {"spec": {"shutdownPolicy": "Delete"}})
        await world.advance(QUARTER_S)
        after = world.find(plural, name_of(plural))
        assert before is not None
        assert after is not None
        for found in (before, after):
            found["metadata"]["labels"] = dict(found["metadata"].get("labels") or {})
            found["metadata"]["labels"].pop("example.com/a", None)
        assert after["metadata"]["labels"] == before["metadata"]["labels"]
        assert after["metadata"].get("ownerReferences") == before["metadata"].get("ownerReferences")
        assert not (after["metadata"].get("annotations") or {}).get(POD_NAME)
        assert plural == "sandboxes" or after["spec"] == before["spec"]
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.parametrize("stamps", [True, False])
@pytest.mark.parametrize(
    ("plural", "force"),
    [
        pytest.param("sandboxtemplates", label(REF_HASH, None), id="no label"),
        pytest.param("sandboxtemplates", label(REF_HASH, "forced"), id="label"),
        pytest.param("networkpolicies", free_egress, id="policy"),
    ],
)
async def test_what_is_put_back_of_a_template_is_not_written_again_and_again(
    plural: str, force: Force, *, stamps: bool
) -> None:
    """At most four writes in fifteen minutes, of the template's label and of its policy."""
    async with open_pools() as world:
        Policy(world, plural, force, stamps=stamps)
        await world.create(placed())
        resource = TEMPLATES
        name = "tpl"
        if plural == "networkpolicies":
            resource = "networkpolicies.networking.k8s.io"
            name = world.plane.store.list(resource, "ns")[0]["metadata"]["name"]
        await world.patch(resource, name, {"metadata": {"labels": {"example.com/a": "b"}}})
        await world.patch(TEMPLATES, "tpl", {"spec": {"envVarsInjectionPolicy": "Allowed"}})
        await world.advance(QUARTER_S)
        assert world.asked()[f"patch {plural}"] <= MOST


def propagated(key: str, value: str | None) -> Force:
    """Return what forces an annotation that a Sandbox hands on to its Pod, or takes it away."""

    def force(stored: Json) -> None:
        metadata = stored["spec"]["podTemplate"].setdefault("metadata", {})
        annotations = metadata.setdefault("annotations", {})
        annotations.pop(key, None)
        if value is not None:
            annotations[key] = value

    return force


@pytest.mark.parametrize(
    "force",
    [
        pytest.param(propagated(NOTE, "forced"), id="annotation"),
        pytest.param(propagated(NOTE, None), id="no annotation"),
        pytest.param(label(LAUNCH_TYPE, None), id="launch type"),
        pytest.param(label(REF_HASH, None), id="hash of the template"),
        pytest.param(label(CREATED_BY, "forced"), id="creator"),
        pytest.param(take_labels, id="no label"),
    ],
)
@pytest.mark.parametrize("is_ready", [True, False])
@pytest.mark.parametrize("stamps", [True, False])
async def test_what_is_put_back_of_a_bound_sandbox_is_not_written_again_and_again(
    force: Force, *, is_ready: bool, stamps: bool
) -> None:
    """At most four writes in fifteen minutes for a claim's metadata, none by the safety net."""
    body = claim(
        metadata={"labels": {CREATED_BY: "python-client"}},
        additionalPodMetadata={"annotations": {NOTE: "blue"}},
    )
    async with open_claims("m1") as world:
        await world.create(body)
        await world.advance(5.0)
        assert bound_name(world) == "m1"
        await world.run_pod("m1", ready=is_ready)
        Policy(world, "sandboxes", force, stamps=stamps)
        world.forget_requests()
        await world.patch("sandboxes", "m1", {"metadata": {"annotations": {"example.com/a": "b"}}})
        await world.advance(QUARTER_S)
        written = world.requests("patch", "sandboxes")
        assert len([one for one in written if one.name == "m1" and not one.subresource]) <= MOST


@pytest.mark.parametrize("value", [None, "forced"])
@pytest.mark.parametrize("is_ready", [True, False])
@pytest.mark.parametrize("stamps", [True, False])
async def test_what_is_put_back_of_a_member_is_not_written_again_and_again(
    value: str | None, *, is_ready: bool, stamps: bool
) -> None:
    """At most four writes in the four minutes before an unready member is replaced."""
    async with open_pools() as world:
        await world.create(placed())
        await world.create(pool(replicas=1))
        await world.advance(5.0)
        (made,) = members(world)
        name = made["metadata"]["name"]
        if is_ready:
            await world.run_pod(name)
        Policy(world, "sandboxes", label(LAUNCH_TYPE, value), stamps=stamps)
        world.forget_requests()
        await world.patch("sandboxes", name, {"metadata": {"annotations": {"example.com/a": "b"}}})
        await world.advance(240.0)
        assert world.asked()["patch sandboxes"] <= MOST


def unstamp(stored: Json) -> None:
    """Take away all annotations of the API."""
    held = stored["metadata"].get("annotations") or {}
    stored["metadata"]["annotations"] = {key: held[key] for key in held if "x-k8s.io" not in key}


@pytest.mark.parametrize("pool_name", ["pool", "missing"])
@pytest.mark.parametrize("names", [("m1",), ()], ids=["warm", "cold"])
@pytest.mark.parametrize("stamps", [True, False])
async def test_annotations_that_a_claim_loses_are_not_written_again_and_again(
    pool_name: str, names: tuple[str, ...], *, stamps: bool
) -> None:
    """At most four writes in fifteen minutes: of a claim that is refused, waits, or is ready."""
    async with open_claims(*names) as world:
        Policy(world, "sandboxclaims", unstamp, stamps=stamps)
        await world.create(claim(pool=pool_name))
        await world.advance(QUARTER_S)
        written = world.requests("patch", "sandboxclaims")
        assert 1 <= len([one for one in written if not one.subresource]) <= MOST
        await world.patch(CLAIMS, "c", {"metadata": {"labels": {"example.com/a": "b"}}})
        await world.advance(QUARTER_S)
        written = world.requests("patch", "sandboxclaims")
        assert len([one for one in written if not one.subresource]) <= MOST + 1
