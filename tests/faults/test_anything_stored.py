"""Whatever a store holds costs one object: anything anywhere in any kind, and the rest lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from lean_sandbox.kube.errors import ApiError
from lean_sandbox.runtime.workers import ReconcileOutcome
from lean_sandbox.watch.kind import Key, Representation
from tests.faults.anything import MADE, hand_for
from tests.support.extensions import settings as with_extensions
from tests.support.odd import KINDS, Odd, change, odd_bytes, odd_objects
from tests.support.world import NS, World, condition, open_world, sandbox

Json = dict[str, Any]

assert MADE.keys() == KINDS.keys()

# A world takes a second, so it takes dozens of objects at once, and there are few of them.
_DEFINED = ["sandboxes", "claims", "templates", "pools"]
_WORLDS = max(2, settings.default.max_examples // 5)  # type: ignore[union-attr]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep what is logged of thousands of objects out of the report."""
    with capture_logs():
        yield


def good(kind: str, name: str, version: int) -> bytes:
    """Return a valid object."""
    obj = {**KINDS[kind]}
    obj["metadata"] = {
        **obj["metadata"],
        "name": name,
        "uid": f"uid-of-{name}",
        "resourceVersion": str(version),
    }
    return msgspec.json.encode(obj)


@pytest.mark.parametrize("kind", sorted(MADE))
@given(changes=odd_objects(raw=True))
def test_anything_in_a_list_costs_one_object(kind: str, changes: list[Odd]) -> None:
    """The objects before and behind it on its page are remembered."""
    hand = hand_for(kind)
    items = b",".join([good(kind, "a", 3), odd_bytes(kind, changes), good(kind, "b", 4)])
    hand.cache.begin_list(None)
    hand.feed.page(b'{"metadata":{"resourceVersion":"9"},"items":[%s]}' % items, initial=True)
    hand.cache.end_list(None)
    assert {Key(NS, "a"), Key(NS, "b")} <= set(hand.cache.keys())
    assert hand.cache.handlers.failures == 0


@pytest.mark.parametrize("kind", sorted(MADE))
@given(
    changes=odd_objects(raw=True),
    event_type=st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "OTHER"]),
    is_full=st.booleans(),
)
def test_anything_in_an_event_costs_one_object(
    kind: str, changes: list[Odd], event_type: str, *, is_full: bool
) -> None:
    """Whole, or read for its metadata alone, of a known object: the event behind it counts."""
    hand = hand_for(kind)
    take = hand.feed.full_line if is_full else hand.feed.line
    take(b'{"type":"ADDED","object":%s}' % good(kind, "odd", 2))
    take(b'{"type":"%s","object":%s}' % (event_type.encode(), odd_bytes(kind, changes)))
    take(b'{"type":"ADDED","object":%s}' % good(kind, "b", 7))
    assert Key(NS, "b") in hand.cache
    assert hand.feed.version == "7"


@given(changes=odd_objects(raw=True))
def test_anything_in_an_error_is_an_error_of_the_server(changes: list[Odd]) -> None:
    """An ERROR event ends the watch by an error of the API tree, whatever it says."""
    hand = hand_for("sandboxes")
    for take in (hand.feed.line, hand.feed.full_line):
        try:
            take(b'{"type":"ERROR","object":%s}' % odd_bytes("sandboxes", changes))
        except ApiError as error:
            assert len(str(error)) < 10_000  # noqa: PT017 -- either end is right


async def _still_serves(world: World) -> None:
    await world.ready_sandbox(sandbox("good"))
    assert condition(world.get("good"), "Ready")["status"] == "True"
    for controller in world.whole.controllers:
        assert controller.workers.outcomes[ReconcileOutcome.PANIC] == 0, controller.name
    for cache in world.whole.all_caches:
        assert cache.handlers.failures == 0


# A plan that fails is told as it is: making it shorter would take far longer than a test may.
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(
    max_examples=_WORLDS,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
@given(
    plan=st.lists(st.tuples(st.sampled_from(_DEFINED), odd_objects(raw=False)), min_size=24),
    form=st.sampled_from(["table", "metadata", "full"]),
)
async def test_anything_stored_leaves_a_healthy_sandbox_served(
    plan: list[tuple[str, list[Odd]]], form: str
) -> None:
    """Half of it is there before the start, half comes later; no reconcile and no handler panics.

    Only of kinds with a definition, which can be edited: a server stores the others as they are.
    """

    def plant(world_store: Any, number: int) -> None:
        kind, changes = plan[number]
        obj = msgspec.json.decode(msgspec.json.encode(KINDS[kind]))
        status = obj.get("status")
        for path, is_key, value in changes:
            change(obj, path, is_key=is_key, value=value)
        # What the server itself cannot do without: it stores by these.
        metadata = obj["metadata"] if isinstance(obj.get("metadata"), dict) else {}
        named = {"name": f"odd-{number}", "namespace": NS, "uid": f"uid-{number}"}
        obj["metadata"] = {**KINDS[kind]["metadata"], **_plain(metadata), **named}
        obj["apiVersion"] = KINDS[kind]["apiVersion"]
        obj["kind"] = KINDS[kind]["kind"]
        if status is not None and not isinstance(obj.get("status"), dict):
            obj["status"] = status
        world_store.plant(obj)

    half = len(plan) // 2

    def prepare(plane: Any) -> None:
        for number in range(half):
            plant(plane.store, number)

    given_settings = with_extensions(watch_representation=Representation(form))
    async with open_world(given_settings, prepare=prepare) as world:
        for number in range(half, len(plan)):
            plant(world.plane.store, number)
        await world.settle()
        await _still_serves(world)
        await world.advance(30.0)
        world.plane.compact()
        await world.cut_watches()
        await world.recover()
        assert not [p for p in world.controller.seen_versions().values() if None in p]


def _plain(metadata: Json) -> Json:
    """Return what of it the embedded server can read, which prints labels and dates."""
    shapes = {"labels": dict, "annotations": dict}
    kept: Json = {}
    for key, shape in shapes.items():
        value = metadata.get(key)
        if isinstance(value, shape) and all(isinstance(one, str) for one in value.values()):
            kept[key] = value
    return kept
