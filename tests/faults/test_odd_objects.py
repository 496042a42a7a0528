"""Objects at the edge of what a server stores, and clocks that do not agree."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from lean_sandbox.config.options import Settings
from lean_sandbox.kube.resources import SANDBOXES
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.watch.kind import Representation
from tests.support.builders import claim, pool, template
from tests.support.extensions import get_claim, open_claims, settings
from tests.support.names import TEMPLATES
from tests.support.refusals import BY_SCHEMA
from tests.support.volumes import volume
from tests.support.world import NS, World, condition, open_world, sandbox

Json = dict[str, Any]
# What the API server takes of annotations, all keys and values together.
ANNOTATION_BYTES = 256 * 1024


@pytest.mark.parametrize("form", ["table", "metadata", "full"])
async def test_a_sandbox_as_large_as_can_be_is_launched_like_any_other(form: str) -> None:
    """Annotations to the limit on Sandbox and template, a mebibyte in all: two writes, as ever."""
    settings = Settings(sandbox_status_window=1.0, watch_representation=Representation(form))
    filler = {f"example.com/{number}": "x" * 32_000 for number in range(8)}
    env = [{"name": f"V{number}", "value": "y" * 50_000} for number in range(10)]
    container = {"name": "main", "image": "busybox", "env": env}
    body = sandbox(
        metadata={"annotations": filler},
        template={"metadata": {"annotations": filler}},
        pod_spec={"containers": [container]},
    )
    async with open_world(settings) as world:
        world.forget_requests()
        await world.ready_sandbox(body)
        assert condition(world.get(), "Ready")["status"] == "True"
        assert world.writes() == {"create pods": 1, "patch sandboxes/status": 1}
        annotations = world.pod()["metadata"]["annotations"]
        assert {key: annotations[key] for key in filler} == filler
        assert sum(map(len, filler.values())) > 0.9 * ANNOTATION_BYTES
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"metadata": {"annotations": {"other": "z"}}})
        await world.advance(60.0)
        assert not world.asked()


@pytest.mark.parametrize(
    ("name", "service"),
    [("n" * 63, True), ("n" * 63, None), ("n" * 63 + "." + "m" * 63, None), ("x.y" * 84, None)],
)
async def test_names_as_long_as_can_be_work(name: str, *, service: bool | None) -> None:
    """63 characters with a Service, up to 253 without one: Ready, with a tracked Pod."""
    spec = {} if service is None else {"service": service}
    async with open_world() as world:
        await world.ready_sandbox(sandbox(name, spec=spec))
        assert condition(world.get(name), "Ready")["status"] == "True"
        assert (world.find("services", name) is not None) == bool(service)


async def test_a_name_that_no_service_can_have_is_an_invalid_configuration() -> None:
    """A dot in the name and service true: the Pod runs, the refusal is told, nothing is repeated.

    (Longer names never get here: the definition refuses them.)
    """
    async with open_world() as world:
        await world.create(sandbox("a.b", spec={"service": True}))
        await world.run_pod("a.b")
        ready = condition(world.get("a.b"), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "InvalidConfiguration")
        assert world.find("pods", "a.b") is not None
        await world.advance(5.0)
        world.forget_requests()
        await world.advance(3600.0)
        assert not world.asked()


async def test_an_object_whose_status_the_server_refuses_is_not_hot_looped() -> None:
    """An older object that breaks a newer rule fails every update: a few tries in an hour."""
    async with open_world() as world:
        world.plane.fail_next("patch", "sandboxes/status", 422, times=10_000, body=BY_SCHEMA)
        world.forget_requests()
        await world.create(sandbox())
        await world.run_pod()
        await world.advance(3600.0)
        assert 1 <= world.asked()["patch sandboxes/status"] <= 25
        assert world.asked()["create pods"] == 1
        world.plane.faults.clear()
        await world.patch("sandboxes", "sb-1", {"spec": {"shutdownPolicy": "Delete"}})
        await world.advance(1.0)
        assert condition(world.get(), "Ready")["status"] == "True"


async def test_times_far_away_are_taken_as_they_are() -> None:
    """The first and the last year there are: long gone, and never to come."""
    async with open_world() as world:
        await world.create(sandbox("old", spec={"shutdownTime": "0001-01-01T00:00:00Z"}))
        await world.create(sandbox("new", spec={"shutdownTime": "9999-12-31T23:59:59Z"}))
        await world.advance(1.0)
        assert condition(world.get("old"), "Ready")["reason"] == "SandboxExpired"
        assert world.find("pods", "old") is None
        assert world.find("pods", "new") is not None


async def test_fields_that_nobody_knows_reach_the_pod_or_are_dropped_by_the_server() -> None:
    """Unknown fields beside the spec disturb nothing; known Pod fields pass through untouched."""
    pod_spec: Json = {
        "hostname": "h",
        "terminationGracePeriodSeconds": 7,
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "securityContext": {"runAsUser": 1000},
        "madeUp": {"a": [1, 2, 3]},
    }
    body = sandbox(pod_spec=pod_spec, spec={"madeUp": True})
    async with open_world() as world:
        await world.admin.create(SANDBOXES, body, bytes, namespace=NS)
        await world.settle()
        await world.run_pod()
        spec = world.pod()["spec"]
        for key in ("hostname", "terminationGracePeriodSeconds", "securityContext"):
            assert spec[key] == pod_spec[key]
        assert pod_spec["tolerations"][0] in spec["tolerations"]
        assert "madeUp" not in spec
        assert condition(world.get(), "Ready")["status"] == "True"


# -- objects that no definition of today lets in ---------------------------------------------------


def deep(levels: int) -> Json:
    """Return objects within objects."""
    found: Json = {}
    for _ in range(levels):
        found = {"a": found}
    return found


ODD_TEMPLATES: dict[str, tuple[Any, str]] = {
    "a list": ({"spec": []}, "spec.podTemplate.spec: Expected `object | null`, got `array`"),
    "a text": ({"spec": "x"}, "spec.podTemplate.spec: Expected `object | null`, got `str`"),
    "a number": ({"spec": 5}, "spec.podTemplate.spec: Expected `object | null`, got `int`"),
    "a policy": (template()["spec"]["podTemplate"], "spec.networkPolicy: Expected `object`"),
    "a container": ({"spec": {"containers": ["x"]}}, "got `str` - at `$.containers[0]`"),
    "a name": ({"spec": {"containers": [{"name": ["x"]}]}}, "at `$.containers[0].name`"),
    "a variable": ({"spec": {"initContainers": [{"env": ["x"]}]}}, "`$.initContainers[0].env[0]`"),
    "volumes": ({"spec": {"volumes": {"a": "b"}}}, "got `object` - at `$.volumes`"),
    "no template": (7, "Expected `object | null`, got `int` - at `$.spec.podTemplate`"),
}


def odd_template(pod_template: Any, name: str = "tpl") -> Json:
    """Return a template that no definition lets in."""
    return {**template(name), "spec": {"podTemplate": pod_template}}


async def still_serves(world: World) -> None:
    """A Sandbox and a claim beside what is odd are served as ever."""
    await world.ready_sandbox(sandbox("good"))
    assert condition(world.get("good"), "Ready")["status"] == "True"
    assert not world.controller.problems


@pytest.mark.parametrize("what", ODD_TEMPLATES)
@pytest.mark.parametrize("is_there_before", [True, False])
async def test_a_template_outside_its_schema_costs_its_own_claims_alone(
    what: str, *, is_there_before: bool
) -> None:
    """In the first list or as an event: the claim's condition names the field, others are served.

    Once the template is mended, the claim gets its Sandbox.
    """
    pod_template, said = ODD_TEMPLATES[what]
    odd = odd_template(pod_template)
    if what == "a policy":
        odd["spec"]["networkPolicy"] = ["x"]

    def prepare(plane: ControlPlane) -> None:
        if is_there_before:
            plane.store.plant(odd)

    async with open_claims(templates=(), prepare=prepare) as world:
        if not is_there_before:
            world.plane.store.plant(odd)
        world.plane.store.create(template("well"))
        world.plane.store.create(pool("healthy", template="well"))
        world.plane.store.create(claim("c2", pool="healthy"))
        await world.create(claim(env=[{"name": "A", "value": "b"}]))
        ready = condition(get_claim(world), "Ready")
        assert ready["status"] == "False"
        assert said in ready["message"]
        assert len(ready["message"]) < 1000
        assert world.find("sandboxes", "c2") is not None
        await still_serves(world)
        mended = template(
            envVarsInjectionPolicy="Allowed",
            networkPolicy=None,
            pod_spec={"initContainers": None, "volumes": None},
        )
        world.plane.store.patch(TEMPLATES, NS, "tpl", {"spec": mended["spec"]})
        await world.advance(120.0)
        assert world.find("sandboxes", "c") is not None


async def test_a_valid_template_that_becomes_odd_is_no_longer_used() -> None:
    """Claims are told, instead of getting a Sandbox of a spec that is gone."""
    async with open_claims() as world:
        world.plane.store.plant(odd_template(7))
        await world.create(claim())
        assert "$.spec.podTemplate" in condition(get_claim(world), "Ready")["message"]
        assert world.find("sandboxes", "c") is None


async def test_the_end_of_an_object_is_seen_even_if_it_cannot_be_read() -> None:
    """A claim that has become odd and is deleted is not remembered for ever."""
    async with open_claims() as world:
        await world.create(claim())
        world.plane.store.plant({**claim(), "spec": {"warmPoolRef": 7}})
        await world.settle()
        assert world.controller.activity().cached["sandboxclaims"] == 1
        world.plane.store.delete("sandboxclaims.extensions.agents.x-k8s.io", NS, "c")
        await world.settle()
        assert not world.controller.activity().cached["sandboxclaims"]


@pytest.mark.parametrize("form", ["table", "metadata", "full"])
async def test_sandboxes_outside_their_schema_leave_the_others_alone(form: str) -> None:
    """Wrong types, depths and numbers, in the list and as events: the others are served."""
    specs: list[Any] = [
        7,
        {"podTemplate": {"spec": "x"}},
        {"podTemplate": {"spec": deep(700)}},
        {"podTemplate": {"metadata": {"labels": {"a": 1}}, "spec": {}}},
        {"podTemplate": {"spec": {"containers": 3}}},
        {"podTemplate": {"spec": {}}, "shutdownTime": "0000-99-99"},
        {"podTemplate": {"spec": {}}, "shutdownTime": "9" * 5000},
    ]

    def prepare(plane: ControlPlane) -> None:
        for number, spec in enumerate(specs):
            plane.store.plant({**sandbox(f"listed-{number}"), "spec": spec})

    given = settings(watch_representation=Representation(form))
    async with open_world(given, prepare=prepare) as world:
        for number, spec in enumerate(specs):
            world.plane.store.plant({**sandbox(f"odd-{number}"), "spec": spec})
        await world.settle()
        await still_serves(world)
        world.forget_requests()
        await world.advance(600.0)
        # A few tries each at most: those that may come to be readable are asked for again.
        assert sum(world.asked().values()) <= 20 * 2 * len(specs)


@pytest.mark.parametrize("volumes", [["x"], {"a": "b"}, [{"name": ["x"]}]], ids=str)
async def test_volumes_outside_their_schema_are_told_of(volumes: object) -> None:
    """Beside volume claims, which go among them: the condition names the field, no Pod is made."""
    body = sandbox(spec={"volumeClaimTemplates": [volume()]}, pod_spec={"volumes": volumes})
    async with open_world() as world:
        world.plane.store.plant(body)
        await world.settle()
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "InvalidConfiguration")
        assert "spec.podTemplate.spec: " in ready["message"]
        assert "$.volumes" in ready["message"]
        assert world.find("pods") is None
        await world.patch("sandboxes", "sb-1", {"spec": {"podTemplate": {"spec": {"volumes": []}}}})
        assert world.find("pods") is not None


async def test_annotations_that_no_pod_can_have_are_told_and_not_kept() -> None:
    """Above 256 KiB for the Pod: the condition names the field, the cache has none of it."""
    body = sandbox(template={"metadata": {"annotations": {"x": "y" * 300_000}}})
    async with open_world() as world:
        await world.create(body)
        ready = condition(world.get(), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "InvalidConfiguration")
        assert "spec.podTemplate.metadata.annotations: 300001 bytes" in ready["message"]
        (entry,) = world.whole.caches.sandboxes
        assert len(repr(entry)) < 10_000
        world.plane.store.patch(
            "sandboxes.agents.x-k8s.io",
            NS,
            "sb-1",
            {"spec": {"podTemplate": {"metadata": {"annotations": None}}}},
        )
        await world.settle()
        await world.run_pod()
        assert condition(world.get(), "Ready")["status"] == "True"


async def test_an_odd_object_is_logged_once_for_each_version_and_never_whole() -> None:
    """Relists repeat nothing; the text of the object is cut."""
    odd = {**claim(), "spec": {"warmPoolRef": {"name": ["secret" * 1000]}}}

    def prepare(plane: ControlPlane) -> None:
        plane.store.plant(odd)

    async with open_claims(prepare=prepare) as world:
        with capture_logs() as logs:
            for _ in range(3):
                world.plane.compact()
                await world.cut_watches()
                await world.recover()
            world.plane.store.plant(odd)
            await world.settle()
        found = [entry for entry in logs if entry["event"] == "object_not_understood"]
        assert len(found) == 1
        assert found[0]["object"] == f"{NS}/c"
        assert len(repr(found[0])) < 1000
        await world.advance(10.0)
        await still_serves(world)


async def test_a_bug_in_a_handler_costs_one_delta() -> None:
    """The other handlers are called, the object is remembered, and the watch goes on."""
    async with open_claims() as world:
        fails = [True]
        cache = world.whole.caches.sandboxes

        def broken(_delta: object) -> None:
            if fails:
                raise KeyError("a bug")

        cache.handlers.insert(0, broken)
        world.has_bugs = True
        with capture_logs() as logs:
            await still_serves(world)
        assert "handler_failed" in [entry["event"] for entry in logs]
        assert cache.handlers.failures > 0
        fails.clear()
        assert cache.passed == cache.handlers.failures
