"""Laws of CustomResourceDefinitions that several control planes of one process have in common."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from tests.conformance.api import Api, answers
from tests.conformance.objects import GROUP, WIDGET_DEFINITION, WIDGETS, widget

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LIVE = f"{WIDGETS}/namespaces/default/widgets"


@asynccontextmanager
async def two_planes() -> AsyncIterator[tuple[Api, Api]]:
    """Start two control planes with the same definition."""
    async with (
        ControlPlane(crds=[WIDGET_DEFINITION]) as one,
        ControlPlane(crds=[WIDGET_DEFINITION]) as other,
        Api(one.url, one.create_token()) as first,
        Api(other.url, other.create_token()) as second,
    ):
        yield first, second


def definition(plural: str, **fields: Json) -> Json:
    """Return a definition of another kind, whose spec has these fields too."""
    made = copy.deepcopy(WIDGET_DEFINITION)
    made["metadata"]["name"] = f"{plural}.{GROUP}"
    made["spec"]["names"] = {"plural": plural, "singular": plural[:-1], "kind": plural.capitalize()}
    for version in made["spec"]["versions"]:
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        properties["spec"].setdefault("properties", {}).update(fields)
    return made


async def test_a_definition_changed_in_one_plane_stays_as_it_was_in_another() -> None:
    """A default added in the first plane reaches no object of the second."""
    async with two_planes() as (first, second):
        path = f"{CRDS}/widgets.{GROUP}"
        changed = (await first.get(path)).ok()
        for version in changed["spec"]["versions"]:
            properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            properties["fresh"] = {"type": "string", "default": "new"}
        (await first.put(path, changed)).ok()
        made = [(await api.post(LIVE, widget("w"))).ok() for api in (first, second)]
        assert [obj["spec"].get("fresh") for obj in made] == ["new", None]
        assert (await second.get(path)).ok()["metadata"]["generation"] == 1


async def test_an_object_changed_in_one_plane_leaves_the_defaults_of_the_other() -> None:
    """What a default gives to an object belongs to this object alone."""
    field = {
        "type": "object",
        "default": {"list": []},
        "properties": {"list": {"type": "array", "items": {"type": "string"}}},
    }
    path = LIVE.replace("widgets", "gadgets")
    gadget = {**widget("g"), "kind": "Gadgets"}
    async with two_planes() as (first, second):
        for api in (first, second):
            (await api.post(CRDS, definition("gadgets", given=field))).ok()
            await answers(api, path)
        (await first.post(path, gadget)).ok()
        (await first.patch(f"{path}/g", {"spec": {"given": {"list": ["mine"]}}})).ok()
        made = (await second.post(path, gadget)).ok()
        assert made["spec"]["given"] == {"list": []}


async def test_a_bad_definition_is_refused_in_the_same_words_everywhere() -> None:
    """A verdict that is remembered is the verdict; the mended definition passes."""
    bad = definition("gadgets", broken={"type": "text"})
    async with two_planes() as (first, second):
        refused = [
            (await api.post(CRDS, bad)).refused(422, "Invalid") for api in (first, second, first)
        ]
        assert refused[0] == refused[1] == refused[2]
        assert "broken" in refused[0]["message"]
        (await first.post(CRDS, definition("gadgets", broken={"type": "string"}))).ok()


async def test_more_definitions_than_are_remembered_are_all_served() -> None:
    """Forty kinds, each with a default of its own, and each object gets the right one."""
    async with two_planes() as (api, _):
        names = [f"kind{index}s" for index in range(40)]
        for name in names:
            field = {"type": "string", "default": name}
            (await api.post(CRDS, definition(name, given=field))).ok()
        for name in names:
            body = {**widget("w"), "kind": name.capitalize()}
            made = (await api.post(LIVE.replace("widgets", name), body)).ok()
            assert made["spec"]["given"] == name


@pytest.mark.parametrize(
    ("names", "member", "taken"),
    [
        ({"plural": "bs", "kind": "A", "listKind": "BList"}, "kind", "A"),
        ({"plural": "bs", "kind": "AList", "listKind": "BList"}, "kind", "AList"),
        ({"plural": "bs", "kind": "B", "listKind": "AList"}, "listKind", "AList"),
        ({"plural": "bs", "kind": "B", "singular": "as"}, "singular", "as"),
        ({"plural": "a", "kind": "B", "singular": "b"}, "plural", "a"),
        ({"plural": "bs", "kind": "B", "shortNames": ["q", "y"]}, "shortNames", "y"),
    ],
)
async def test_a_name_that_another_definition_has_is_refused(
    names: Json, member: str, taken: str
) -> None:
    """The refusal names the member and the definition; it passes in another group, or later."""
    own = {"plural": "as", "kind": "A", "singular": "a", "shortNames": ["x", "y"]}
    second = named(GROUP, names)
    async with ControlPlane(crds=[]) as plane, Api(plane.url, plane.create_token()) as api:
        (await api.post(CRDS, named(GROUP, own))).ok()
        (await api.post(CRDS, named("other.dev", own))).ok()
        refused = (await api.post(CRDS, second)).refused(422, "Invalid")
        causes = {cause["field"]: cause["message"] for cause in refused["details"]["causes"]}
        why = f'Invalid value: "{taken}": is already in use by as.{GROUP}'
        assert causes[f"spec.names.{member}"] == why
        (await api.post(CRDS, named("third.dev", names))).ok()
        assert (await api.delete(f"{CRDS}/as.{GROUP}")).status == 200
        await plane.settled()
        (await api.post(CRDS, second)).ok()


async def test_a_group_of_built_in_kinds_gets_no_other_ones() -> None:
    """The refusal names the group."""
    wanted = named("coordination.k8s.io", {"plural": "leases", "kind": "Lease"})
    wanted["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    async with ControlPlane(crds=[]) as plane, Api(plane.url, plane.create_token()) as api:
        refused = (await api.post(CRDS, wanted)).refused(422, "Invalid")
        assert [cause["field"] for cause in refused["details"]["causes"]] == ["spec.group"]


async def test_a_definition_cannot_change_to_a_name_that_is_taken() -> None:
    """It keeps those that it has, and what it had before others may keep being written."""
    async with ControlPlane(crds=[]) as plane, Api(plane.url, plane.create_token()) as api:
        for plural in ("as", "bs"):
            names = {"plural": plural, "kind": plural.title(), "singular": plural[0]}
            (await api.post(CRDS, named(GROUP, names))).ok()
        path = f"{CRDS}/bs.{GROUP}"
        (await api.patch(path, {"spec": {"names": {"singular": "a"}}})).refused(422, "Invalid")
        (await api.patch(path, {"spec": {"names": {"singular": "c"}}})).ok()
        status = (await api.get(path)).ok()["status"]
        assert status["acceptedNames"]["singular"] == "c"


def named(group: str, names: Json) -> Json:
    """Return a definition with these names."""
    made = copy.deepcopy(WIDGET_DEFINITION)
    made["metadata"]["name"] = f"{names['plural']}.{group}"
    made["spec"] |= {"group": group, "names": names}
    return made


async def test_metrics_of_pods_are_a_kind_like_any_other() -> None:
    """A definition serves ``metrics.k8s.io``: what a test sets is listed by labels, and read."""
    names = {
        "plural": "pods",
        "singular": "pod",
        "kind": "PodMetrics",
        "listKind": "PodMetricsList",
    }
    metrics = named("metrics.k8s.io", names)
    metrics["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for tests"}
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True}
    metrics["spec"]["versions"] = [{**version, "schema": {"openAPIV3Schema": open_schema}}]
    usage = [{"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}]
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
    async with ControlPlane(crds=[metrics]) as plane, Api(plane.url, plane.create_token()) as api:
        for name in ("a", "b"):
            plane.store.plant(
                {
                    "apiVersion": "metrics.k8s.io/v1beta1",
                    "kind": "PodMetrics",
                    "metadata": {"name": name, "labels": {"app": name}},
                    "timestamp": "2026-01-02T03:04:05Z",
                    "window": "30s",
                    "containers": usage,
                }
            )
        listed = (await api.get(path, labelSelector="app=a")).ok()
        assert listed["kind"] == "PodMetricsList"
        assert [one["metadata"]["name"] for one in listed["items"]] == ["a"]
        assert (await api.get(f"{path}/b")).ok()["containers"] == usage
        assert (await api.get("/api/v1/namespaces/default/pods/b")).status == 404
