"""What is left in memory of large objects that were created and deleted again."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.model.wire import MOST_BYTES, interned, is_small, shared_map
from tests.support.names import EXTENSIONS
from tests.support.world import NS, open_world, sandbox

Json = dict[str, Any]
TURNS = 4
#: Bytes of the controller that may be left of four objects with 200 kB each.
BOUND = 256 * 1024
OURS = [tracemalloc.Filter(True, "*/lean_sandbox/*"), tracemalloc.Filter(True, "*/filters/*")]  # noqa: FBT003 -- the parameter has no usable name
THEIRS = [tracemalloc.Filter(False, "*/lean_sandbox/local/*")]  # noqa: FBT003


def filler(number: int) -> Json:
    """Return 200 kB of annotations that no other object has."""
    return {f"example.com/{at}": f"{number}-{at}-" + "x" * 50_000 for at in range(4)}


def extension(kind: str, number: int, spec: Json) -> Json:
    """Return an object of the extensions' group."""
    metadata = {"name": f"one-{number}", "namespace": NS}
    return {"apiVersion": EXTENSIONS, "kind": kind, "metadata": metadata, "spec": spec}


def with_template_annotations(number: int) -> Json:
    """Return a suspended Sandbox with large annotations for its Pod."""
    template = {"metadata": {"annotations": filler(number)}}
    return sandbox(f"one-{number}", spec={"operatingMode": "Suspended"}, template=template)


def with_template_labels(number: int) -> Json:
    """Return a suspended Sandbox with large labels for its Pod."""
    template = {"metadata": {"labels": filler(number)}}
    return sandbox(f"one-{number}", spec={"operatingMode": "Suspended"}, template=template)


def with_ports(number: int) -> Json:
    """Return a suspended Sandbox with very many ports."""
    ports = [{"containerPort": 1 + at, "name": f"p{number}-{at}"} for at in range(800)]
    container = {"name": "main", "image": "busybox", "ports": ports}
    pod_spec = {"containers": [container]}
    return sandbox(f"one-{number}", spec={"operatingMode": "Suspended"}, pod_spec=pod_spec)


def with_template_ref(number: int) -> Json:
    """Return a suspended Sandbox whose annotations name no template that can exist."""
    annotations = {"agents.x-k8s.io/sandbox-template-ref": f"{number}" + "x" * 200_000}
    spec = {"operatingMode": "Suspended"}
    return sandbox(f"one-{number}", spec=spec, metadata={"annotations": annotations})


def with_additional_metadata(number: int) -> Json:
    """Return a claim that wants large annotations on its Pod."""
    spec = {"warmPoolRef": {"name": "p"}, "additionalPodMetadata": {"annotations": filler(number)}}
    return extension("SandboxClaim", number, spec)


def with_pool_name(number: int) -> Json:
    """Return a claim that names no pool that can exist."""
    return extension("SandboxClaim", number, {"warmPoolRef": {"name": f"{number}" + "x" * 200_000}})


def with_template_name(number: int) -> Json:
    """Return a pool that names no template that can exist."""
    spec = {"sandboxTemplateRef": {"name": f"{number}" + "x" * 200_000}}
    return extension("SandboxWarmPool", number, spec)


def with_large_spec(number: int) -> Json:
    """Return a template with a large Pod."""
    env = [{"name": f"V{at}", "value": f"{number}" + "x" * 50_000} for at in range(4)]
    container = {"name": "main", "image": "busybox", "env": env}
    return extension(
        "SandboxTemplate",
        number,
        {"podTemplate": {"spec": {"containers": [container]}}, "service": False},
    )


CASES: dict[Callable[[int], Json], str] = {
    with_template_annotations: "sandboxes",
    with_template_labels: "sandboxes",
    with_ports: "sandboxes",
    with_template_ref: "sandboxes",
    with_additional_metadata: "sandboxclaims.extensions.agents.x-k8s.io",
    with_pool_name: "sandboxclaims.extensions.agents.x-k8s.io",
    with_template_name: "sandboxwarmpools.extensions.agents.x-k8s.io",
    with_large_spec: "sandboxtemplates.extensions.agents.x-k8s.io",
}


@contextmanager
def traced() -> Iterator[None]:
    """Count what is put on the heap from here on."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def held_by_the_controller() -> int:
    """Return the bytes that the controller's own modules allocated and something still holds."""
    gc.collect()
    ours = tracemalloc.take_snapshot().filter_traces(OURS).filter_traces(THEIRS)
    return sum(entry.size for entry in ours.statistics("filename"))


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
async def test_nothing_large_is_left_of_what_was_deleted(make: Callable[[int], Json]) -> None:
    """Objects with large values, created and deleted one by one, leave the heap as it was."""
    settings = Settings(sandbox_status_window=1.0, extensions=True)
    async with open_world(settings) as world:

        async def live_and_die(number: int) -> None:
            await world.create(make(number))
            await world.delete(CASES[make], f"one-{number}")

        await live_and_die(TURNS)
        with traced():
            for number in range(TURNS):
                await live_and_die(number)
            await world.advance(60.0)
            assert held_by_the_controller() < BOUND


def test_only_small_values_are_shared() -> None:
    """Equal small maps are one object; large ones are equal, and each its holder's own."""
    small = {"app": "agents"}
    assert shared_map(dict(small)) is shared_map(dict(small))
    large = {"note": "x" * MOST_BYTES}
    one = shared_map(dict(large))
    other = shared_map(dict(large))
    assert one == other == large
    assert one is not other
    assert not is_small(tuple(range(MOST_BYTES)))
    assert not is_small((small, ("x" * MOST_BYTES,)))
    text = "x" * MOST_BYTES
    assert interned(text) is text
