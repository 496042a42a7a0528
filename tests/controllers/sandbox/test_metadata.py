"""How labels and annotations travel from a Sandbox and its template to the Pod, and back out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.names import EXTENSIONS, REF_HASH, WARM_POOL
from tests.support.world import HASH_LABEL, World, condition, open_world, sandbox

Json = dict[str, Any]

LABELS = "agents.x-k8s.io/propagated-labels"
ANNOTATIONS = "agents.x-k8s.io/propagated-annotations"
POD_NAME = "agents.x-k8s.io/pod-name"
TRACE = "opentelemetry.io/trace-context"
CREATED_BY = "agents.x-k8s.io/created-by"
CLAIM_UID = "agents.x-k8s.io/claim-uid"


def templated(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **metadata: Any,
) -> Json:
    """Return a Sandbox whose template carries labels and annotations."""
    given = {"labels": labels, "annotations": annotations}
    template = {key: value for key, value in given.items() if value is not None}
    return sandbox(template={"metadata": template}, metadata=metadata)


async def retemplate(world: World, **metadata: Any) -> None:
    """Change the labels or annotations of the template; ``None`` removes a key."""
    await world.patch("sandboxes", "sb-1", {"spec": {"podTemplate": {"metadata": metadata}}})


async def relabel_pod(world: World, **metadata: Any) -> None:
    """Change the Pod's own metadata past the controller."""
    await world.patch("pods", "sb-1", {"metadata": metadata})


def labels_of(world: World) -> dict[str, str]:
    """Return the Pod's labels without the tracking label, which must be right in any case."""
    labels: dict[str, str] = dict(world.pod()["metadata"]["labels"])
    assert labels.pop(HASH_LABEL) == "ae84b5b2"
    return labels


def annotations_of(world: World) -> dict[str, str]:
    """Return the Pod's annotations."""
    found: dict[str, str] = world.pod()["metadata"].get("annotations") or {}
    return found


def extension(world: World, kind: str, name: str, *, group: str = EXTENSIONS) -> Json:
    """Return the controller reference to an extension object that exists."""
    return {**world.foreign_owner(kind, name), "apiVersion": group}


# -- what the template adds, changes and takes away ----------------------------------------------


@pytest.mark.case(67, 68, 69)
async def test_a_key_removed_from_the_template_is_removed_from_the_pod_and_nothing_else() -> None:
    """Case 67: what the template once gave and gives no more goes, with its entry in the list.

    A label of somebody else stays (68); the list of the last one becomes the empty string (69).
    """
    async with open_world() as world:
        await world.ready_sandbox(templated({"a": "1", "b": "2"}, {"c": "3"}))
        uid = world.pod()["metadata"]["uid"]
        await relabel_pod(world, labels={"theirs": "x"}, annotations={"note": "y"})
        await retemplate(world, labels={"a": None})
        assert labels_of(world) == {"b": "2", "theirs": "x"}
        assert annotations_of(world)[LABELS] == "b"
        world.forget_requests()
        await retemplate(world, labels={"b": None}, annotations={"c": None})
        assert labels_of(world) == {"theirs": "x"}
        assert annotations_of(world) == {LABELS: "", ANNOTATIONS: "", "note": "y"}
        assert world.writes() == {"patch pods": 1, "patch sandboxes/status": 1}
        assert world.pod()["metadata"]["uid"] == uid


@pytest.mark.case(70)
async def test_a_changed_value_reaches_the_running_pod() -> None:
    """Case 70: a new value in the template is patched into the Pod that runs; it is not replaced.

    The spec of the template is another matter: a running Pod keeps the one it was made with.
    """
    async with open_world() as world:
        await world.ready_sandbox(templated({"a": "1"}, {"c": "3"}))
        uid = world.pod()["metadata"]["uid"]
        await retemplate(world, labels={"a": "9"}, annotations={"c": "8", "d": "7"})
        image = [{"name": "main", "image": "busybox:2"}]
        await world.patch(
            "sandboxes", "sb-1", {"spec": {"podTemplate": {"spec": {"containers": image}}}}
        )
        assert labels_of(world) == {"a": "9"}
        assert annotations_of(world) == {LABELS: "a", ANNOTATIONS: "c,d", "c": "8", "d": "7"}
        assert world.pod()["metadata"]["uid"] == uid
        assert world.pod()["spec"]["containers"][0]["image"] == "busybox"
        assert condition(world.get(), "Ready")["observedGeneration"] == 3


@pytest.mark.case(71)
@pytest.mark.parametrize(
    "edit",
    [
        {"labels": {"a": "forged"}},
        {"labels": {"a": None}},
        {"labels": {HASH_LABEL: "00000000"}},
        {"labels": {WARM_POOL: "0badcafe"}},
        {"annotations": {"c": "forged"}},
        {"annotations": {"c": None}},
        {"annotations": {LABELS: None}},
        {"annotations": {ANNOTATIONS: "c,zzz"}},
    ],
)
async def test_an_edit_by_hand_of_what_the_controller_manages_is_undone(edit: Json) -> None:
    """Case 71: managed metadata changed on the Pod by hand is put back at once, by one patch."""
    async with open_world() as world:
        await world.ready_sandbox(templated({"a": "1"}, {"c": "3"}))
        before = world.pod()["metadata"]
        world.forget_requests()
        await relabel_pod(world, **edit)
        after = world.pod()["metadata"]
        assert after["labels"] == before["labels"]
        assert after["annotations"] == before["annotations"]
        assert world.asked() == {"patch pods": 1}


@pytest.mark.case(68)
async def test_what_others_put_on_the_pod_costs_nothing() -> None:
    """Case 68: keys that neither the template nor the lists name are left alone, unasked."""
    async with open_world() as world:
        await world.ready_sandbox(templated({"a": "1"}))
        world.forget_requests()
        await relabel_pod(world, labels={"theirs": "x"}, annotations={"note": "y"})
        await relabel_pod(world, labels={"agents.x-k8s.io/adoptable": "true"})
        assert labels_of(world) == {"a": "1", "theirs": "x", "agents.x-k8s.io/adoptable": "true"}
        assert annotations_of(world) == {LABELS: "a", "note": "y"}
        assert not world.asked()


@pytest.mark.case(82)
async def test_the_annotation_that_guards_against_eviction_goes_like_any_other() -> None:
    """Case 82: the autoscaler's annotation is an ordinary one: listed, hence taken away again."""
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    async with open_world() as world:
        await world.ready_sandbox(templated(annotations={key: "true"}))
        assert annotations_of(world) == {key: "true", ANNOTATIONS: key}
        await retemplate(world, annotations={key: None})
        assert annotations_of(world) == {ANNOTATIONS: ""}


@pytest.mark.case(148)
async def test_an_empty_label_is_given_to_a_new_pod_and_only_listed_on_an_old_one() -> None:
    """Case 148: an empty value equals a missing key on a Pod that exists, yet it is listed."""
    async with open_world() as world:
        await world.ready_sandbox(templated({"a": ""}))
        assert labels_of(world) == {"a": ""}
        await retemplate(world, labels={"b": ""})
        assert labels_of(world) == {"a": ""}
        assert annotations_of(world) == {LABELS: "a,b"}


@pytest.mark.case(149)
async def test_a_template_without_metadata_leaves_no_lists_on_the_pod() -> None:
    """Case 149: lists that never were are not made empty; a change of the spec touches no Pod."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"spec": {"shutdownPolicy": "Delete"}})
        assert not annotations_of(world)
        assert world.asked() == {"get sandboxes": 1, "patch sandboxes/status": 1}


@pytest.mark.case(70)
async def test_a_label_that_no_pod_may_carry_shows_in_ready_until_it_is_mended() -> None:
    """Case 70: the schema does not judge the template's labels; the server does, at the patch."""
    async with open_world() as world:
        await world.ready_sandbox(templated({"a": "1"}))
        await retemplate(world, labels={"a": "not a label value!"})
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "ReconcilerError")
        assert ready["message"].startswith("Error seen: failed to patch pod: ")
        assert labels_of(world) == {"a": "1"}
        await retemplate(world, labels={"a": "2"})
        assert labels_of(world) == {"a": "2"}
        assert condition(world.get(), "Ready")["status"] == "True"


# -- reserved keys -------------------------------------------------------------------------------


@pytest.mark.case(72)
@pytest.mark.parametrize("is_update", [False, True])
async def test_reserved_keys_of_a_template_never_reach_the_pod(*, is_update: bool) -> None:
    """Case 72: reserved keys are dropped without a word, from a new Pod and from a running one."""
    labels = {HASH_LABEL: "evil", "extensions.agents.x-k8s.io/x": "y", "api.agents.x-k8s.io/z": "1"}
    annotations = {POD_NAME: "elsewhere", TRACE: "{}", "extensions.agents.x-k8s.io/w": "v"}
    async with open_world() as world:
        if is_update:
            await world.ready_sandbox()
            await retemplate(world, labels=labels, annotations=annotations)
        else:
            await world.ready_sandbox(templated(labels, annotations))
        # A prefix that only looks alike is not reserved.
        assert labels_of(world) == {"api.agents.x-k8s.io/z": "1"}
        assert annotations_of(world) == {LABELS: "api.agents.x-k8s.io/z"}
        assert condition(world.get(), "Ready")["status"] == "True"


@pytest.mark.case(73, 74)
async def test_reserved_keys_that_an_older_controller_listed_are_cleaned_away() -> None:
    """Case 73: reserved keys found in the lists go, and the lists are set right.

    The tracking label, listed or not, stays (74).
    """
    async with open_world() as world:
        await world.ready_sandbox(templated({"a": "1"}, {"c": "3"}))
        world.forget_requests()
        await relabel_pod(
            world,
            labels={"agents.x-k8s.io/evil": "x"},
            annotations={
                POD_NAME: "p",
                TRACE: "t",
                LABELS: f"a,agents.x-k8s.io/evil,{HASH_LABEL}",
                ANNOTATIONS: f"c,{POD_NAME},{TRACE}",
            },
        )
        assert labels_of(world) == {"a": "1"}
        assert annotations_of(world) == {"c": "3", LABELS: "a", ANNOTATIONS: "c"}
        assert world.asked() == {"patch pods": 1}


# -- what the Sandbox's own labels and owner give ------------------------------------------------


@pytest.mark.case(75, 78, 79)
@pytest.mark.parametrize("group", [None, "apps/v1", "other.agents.x-k8s.io/v1beta1"])
async def test_extension_labels_count_only_under_an_extension_owner(group: str | None) -> None:
    """Case 75: without an owner of the extensions' group neither label is on the Pod.

    Whoever put them there: they are removed from a Pod that has them (78), and a group that only
    looks alike counts for nothing (79).
    """
    async with open_world() as world:
        owners = (
            [extension(world, "SandboxWarmPool", "pool", group=group)] if group is not None else []
        )
        labels = {WARM_POOL: "034dafb4", REF_HASH: "11111111"}
        body = templated(labels=None, annotations=None)
        body["metadata"].update(labels=labels, ownerReferences=owners)
        await world.ready_sandbox(body)
        assert labels_of(world) == {}
        await relabel_pod(world, labels=labels)
        assert labels_of(world) == {}


@pytest.mark.case(76, 77, 78)
async def test_extension_labels_follow_the_owner() -> None:
    """Case 76: a member of a warm pool shows both labels on its Pod.

    Taken by a claim it keeps only the template's (77), and shows the claim's uid; released, it
    loses both (78). None of it needs a GET of the Sandbox: its metadata came with the watch.
    """
    async with open_world() as world:
        older = "extensions.agents.x-k8s.io/v1alpha1"
        pool = extension(world, "SandboxWarmPool", "my-warm-pool", group=older)
        claim = extension(world, "SandboxClaim", "claim", group="extensions.agents.x-k8s.io/v2")
        body = templated(
            labels=None,
            annotations=None,
            ownerReferences=[pool],
        )
        body["metadata"]["labels"] = {WARM_POOL: "034dafb4", REF_HASH: "11111111"}
        await world.ready_sandbox(body)
        assert labels_of(world) == {WARM_POOL: "034dafb4", REF_HASH: "11111111"}
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"metadata": {"ownerReferences": [claim]}})
        assert labels_of(world) == {REF_HASH: "11111111", CLAIM_UID: claim["uid"]}
        assert world.asked() == {"patch pods": 1}
        await world.patch("sandboxes", "sb-1", {"metadata": {"ownerReferences": None}})
        assert labels_of(world) == {}
        assert world.asked() == {"patch pods": 2}


@pytest.mark.case(13, 80)
async def test_created_by_reaches_the_pod_normalised() -> None:
    """Case 80: an unknown creator becomes ``unknown`` on the Pod, no creator removes the label.

    Known clients are named (13). The label of the Sandbox itself is left as it is.
    """
    async with open_world() as world:
        body = sandbox(metadata={"labels": {CREATED_BY: "foo"}})
        await world.ready_sandbox(body)
        assert labels_of(world) == {CREATED_BY: "unknown"}
        assert world.get()["metadata"]["labels"] == {CREATED_BY: "foo"}
        world.forget_requests()
        clients = ("go-client", "python-client", "controller")
        for value in (*clients, "", None):
            await world.patch("sandboxes", "sb-1", {"metadata": {"labels": {CREATED_BY: value}}})
            assert labels_of(world) == ({CREATED_BY: value} if value else {})
        assert world.asked() == {"patch pods": 4}


@pytest.mark.case(81)
async def test_labels_of_the_sandbox_itself_stay_there() -> None:
    """Case 81: labels in the Sandbox's own metadata are not the Pod's and cost no request."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(metadata={"labels": {"team": "x"}}))
        assert labels_of(world) == {}
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"metadata": {"labels": {"team": "y"}}})
        assert labels_of(world) == {}
        assert not world.asked()
        assert not world.reports
