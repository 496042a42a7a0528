"""What the controller keeps of the largest objects that the API server takes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tests.support.builders import claim, placed, pool, template
from tests.support.extensions import get_claim, members, open_claims, pool_events, ready_of
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.volumes import volume
from tests.support.world import NS, World, condition, sandbox

Json = dict[str, Any]
TRACE_CONTEXT = "opentelemetry.io/trace-context"
MIB = 1024 * 1024
OURS = [tracemalloc.Filter(True, "*/lean_sandbox/*"), tracemalloc.Filter(True, "*/filters/*")]  # noqa: FBT003 -- the parameter has no usable name
THEIRS = [tracemalloc.Filter(False, "*/lean_sandbox/local/*")]  # noqa: FBT003
#: What may be left of all that has gone: tombstones, queues, caches of small values.
LEFT = 512 * 1024


def filler(number: object, size: int, entries: int = 6) -> dict[str, str]:
    """Return annotations of about ``size`` bytes that no other object has."""
    each = size // entries
    return {f"example.com/{number}-{at}": f"{at}" + "x" * each for at in range(entries)}


@contextmanager
def heap() -> Iterator[Callable[[], int]]:
    """Count, from here on, the bytes that the controller's own modules have allocated and hold."""
    gc.collect()
    tracemalloc.start()

    def held() -> int:
        gc.collect()
        ours = tracemalloc.take_snapshot().filter_traces(OURS).filter_traces(THEIRS)
        return sum(entry.size for entry in ours.statistics("filename"))

    try:
        yield held
    finally:
        tracemalloc.stop()


async def test_claims_above_the_limit_of_annotations_are_refused_and_not_kept() -> None:
    """Thirty of 1.2 MB each: told why, no Sandbox, no memory; nothing is left afterwards."""
    async with open_claims(replicas=0) as world:
        with heap() as held:
            for number in range(30):
                asked = {"annotations": filler(number, 1_200_000)}
                world.plane.store.create(claim(f"c-{number}", additionalPodMetadata=asked))
                await world.settle()
            await world.advance(10.0)
            assert held() < 6 * MIB
            status, reason, message = ready_of(world, "c-29")
            assert (status, reason) == ("False", "InvalidMetadata")
            assert "spec.additionalPodMetadata.annotations: 12001" in message
            assert "262144 bytes" in message
            assert world.plane.store.list(SANDBOXES, NS) == []
            for number in range(30):
                world.plane.store.delete(CLAIMS, NS, f"c-{number}", grace_s=0)
            await world.settle()
            await world.advance(120.0)
            assert held() < LEFT


async def test_a_template_above_the_limit_makes_no_members_and_is_not_kept() -> None:
    """A pool of a hundred stays empty, its Event and its claims say why; a smaller one helps."""
    large = placed("large", metadata={"annotations": filler(1, 1_200_000)})
    async with open_claims(replicas=0) as world:
        with heap() as held:
            await world.create(large)
            await world.create(pool("wide", 100, template="large"))
            await world.create(claim(pool="wide"))
            await world.advance(10.0)
            assert held() < MIB
            assert members(world, "wide") == []
            (note,) = (note for *_, note in pool_events(world) if "large" in note)
            assert "spec.podTemplate.metadata.annotations: 12000" in note
            assert "spec.podTemplate.metadata.annotations: 12000" in ready_of(world)[2]
            small = {"podTemplate": {"metadata": {"annotations": None}}}
            await world.patch(TEMPLATES, "large", {"spec": small})
            await world.advance(5.0)
            assert len(members(world, "wide")) == 100


async def test_claims_that_fit_no_pod_beside_their_template_make_nothing() -> None:
    """Forty that are refused for the sum of two halves: what they ask for is kept, 100 kB each."""
    both = {"annotations": filler("template", 200_000)}
    async with open_claims(replicas=0, templates=(template(metadata=both),)) as world:
        with heap() as held:
            for number in range(40):
                asked = {"annotations": filler(number, 100_000)}
                world.plane.store.create(claim(f"c-{number}", additionalPodMetadata=asked))
            await world.settle()
            await world.advance(10.0)
            found = {ready_of(world, f"c-{number}")[1] for number in range(40)}
            assert found == {"InvalidMetadata"}
            assert world.plane.store.list(SANDBOXES, NS) == []
            assert held() < 8 * MIB


async def test_what_is_created_is_kept_for_its_first_reconcile_only() -> None:
    """Thirty members of 50 kB whose volume claims cannot be listed leave none of the responses."""
    env = [{"name": f"V{number}", "value": "x" * 10_000} for number in range(5)]
    container = {"name": "main", "image": "busybox", "env": env}
    large = template(pod_spec={"containers": [container]}, volumeClaimTemplates=[volume()])
    async with open_claims(replicas=0, templates=(large,)) as world:
        world.plane.fail_next("list", "persistentvolumeclaims", 403, times=1000)
        with heap() as held:
            world.plane.store.patch(POOLS, NS, "pool", {"spec": {"replicas": 30}})
            await world.pass_time(30.0)
            made = world.plane.store.list(SANDBOXES, NS)
            assert {condition(one, "Ready")["reason"] for one in made} == {"ReconcilerError"}
            assert len(made) == 30
            world.forget_requests()
            assert held() < MIB


async def test_responses_of_two_mebibytes_are_kept_until_their_first_reconciles() -> None:
    """Sixty members of 50 kB wait for one worker: about forty are kept, the others fetched."""
    large = template(metadata={"annotations": filler("template", 50_000)})
    async with open_claims(replicas=0, templates=(large,), sandbox_concurrent_workers=1) as world:
        held = world.plane.hold("create", "pods")
        await world.patch(POOLS, "pool", {"spec": {"replicas": 60}})
        await world.advance(5.0)
        made = world.plane.store.list(SANDBOXES, NS)
        assert len(made) == 60
        world.forget_requests()
        held.release()
        await world.advance(60.0)
        assert len(world.plane.store.list("pods", NS)) == 60
        # All but those that are kept, and the one that was under way.
        kept = 2 * MIB // len(msgspec.json.encode(made[0]))
        assert abs(world.asked()["get sandboxes"] - (60 - kept - 1)) <= 2


@pytest.mark.parametrize(("size", "gets"), [(63_800, 0), (64_300, 1)])
async def test_a_response_of_64_kib_is_kept_for_the_first_reconcile(size: int, gets: int) -> None:
    """A member of the size is launched from the answer to its create; a larger one is fetched.

    All that is not in the annotations are some 1,450 bytes.
    """
    large = template(metadata={"annotations": filler("template", size)})
    async with open_claims(replicas=0, templates=(large,)) as world:
        await world.patch(POOLS, "pool", {"spec": {"replicas": 1}})
        await world.advance(5.0)
        assert len(world.plane.store.list("pods", NS)) == 1
        assert world.asked()["get sandboxes"] == gets


def with_small_entries(name: str) -> Json:
    """Return a Sandbox with very many short annotations for its Pod."""
    return sandbox(
        name, template={"metadata": {"annotations": {f"{at:x}": "" for at in range(5_000)}}}
    )


def with_small_labels(name: str) -> Json:
    """Return a Sandbox with very many short labels for its Pod."""
    return sandbox(name, template={"metadata": {"labels": {f"{at:x}": "" for at in range(5_000)}}})


def with_large_labels(name: str) -> Json:
    """Return a Sandbox with large labels for its Pod."""
    return sandbox(name, template={"metadata": {"labels": filler(name, 1_000_000)}})


def with_wide_characters(name: str) -> Json:
    """Return a Sandbox whose annotations are fewer characters than bytes."""
    wide = {"annotations": {"a": "\N{GRINNING FACE}" * 100_000}}
    return sandbox(name, template={"metadata": wide})


def with_ports(name: str) -> Json:
    """Return a Sandbox with very many ports."""
    ports = [{"containerPort": 1 + at} for at in range(5_000)]
    container = {"name": "main", "image": "busybox", "ports": ports}
    return sandbox(name, pod_spec={"containers": [container]})


def with_volumes(name: str) -> Json:
    """Return a Sandbox with very many volume claims."""
    volumes = [{"metadata": {"name": f"v{at}"}, "spec": {}} for at in range(5_000)]
    return sandbox(name, spec={"volumeClaimTemplates": volumes})


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (with_small_entries, "spec.podTemplate.metadata.annotations: 5000 entries"),
        (with_small_labels, "spec.podTemplate.metadata.labels: 5000 entries"),
        (with_large_labels, "spec.podTemplate.metadata.labels: 10001"),
        (with_wide_characters, "spec.podTemplate.metadata.annotations: 400001 bytes"),
        (with_ports, "spec.podTemplate.spec.containers[].ports: 5000 entries"),
        (with_volumes, "spec.volumeClaimTemplates: 5000 entries"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_parts_of_a_sandbox_that_no_pod_needs_so_many_of_are_told_and_not_kept(
    make: Callable[[str], Json], field: str
) -> None:
    """Each is named, the Sandbox has no Pod, and nothing of the parts is in memory."""
    async with open_claims(replicas=0) as world:
        world.plane.store.plant({**make("first"), "metadata": {"name": "first", "namespace": NS}})
        await world.settle()
        with heap() as held:
            for number in range(2):
                body = make(f"sb-{number}")
                world.plane.store.plant(body)
                await world.settle()
            await world.advance(5.0)
            ready = condition(world.get("sb-1"), "Ready")
            assert (ready["status"], ready["reason"]) == ("False", "InvalidConfiguration")
            assert field in ready["message"]
            assert world.find("pods", "sb-1") is None
            assert held() < LEFT


async def test_long_annotations_of_a_claim_are_not_kept() -> None:
    """Times, names and traces are cut where none is so long; the claim is served."""
    keys = ["client-first-requested-at", "controller-first-observed-at", "sandbox-name"]
    async with open_claims(replicas=0) as world:
        with heap() as held:
            for key in [*(f"agents.x-k8s.io/{one}" for one in keys), TRACE_CONTEXT]:
                for number in range(10):
                    name = f"c-{key.rpartition('/')[2]}-{number}"
                    notes = {key: f"{number}" + "x" * 200_000}
                    world.plane.store.create(claim(name, metadata={"annotations": notes}))
            await world.settle()
            await world.advance(5.0)
            assert get_claim(world, "c-trace-context-3")["status"]["sandbox"]["name"]
            assert held() < 2 * MIB


async def test_verdicts_go_with_their_template() -> None:
    """A pool that replaces its members at once leaves nothing of a large template that is gone."""
    env = [{"name": f"V{at}", "value": "x" * 100_000} for at in range(4)]
    container = {"name": "main", "image": "busybox", "env": env}

    async def live_and_die(world: World, name: str) -> None:
        await world.create(placed(name, pod_spec={"containers": [container]}))
        await world.create(pool(name, 1, template=name, strategy="Recreate"))
        await world.advance(5.0)
        assert members(world, name)
        await world.delete(POOLS, name)
        await world.delete(TEMPLATES, name)
        await world.advance(90.0)

    async with open_claims(replicas=0) as world:
        await live_and_die(world, "first")
        with heap() as held:
            for number in range(4):
                await live_and_die(world, f"t-{number}")
            assert held() < LEFT
