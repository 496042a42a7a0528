"""Claims whose spec cannot be used: each says which field, and is served once it is mended."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import claim
from tests.support.extensions import bound_name, open_claims, ready_of
from tests.support.names import CLAIMS

Json = dict[str, Any]
# More than the annotations of any object may have.
MUCH = {f"example.com/{number}": "x" * 60_000 for number in range(5)}
MANY = {f"example.com/{number}": "" for number in range(3000)}
UNUSABLE: dict[str, tuple[Json, str]] = {
    "time": ({"lifecycle": {"shutdownTime": "soon"}}, "spec.lifecycle.shutdownTime"),
    "bytes": (
        {"additionalPodMetadata": {"annotations": MUCH}},
        "spec.additionalPodMetadata.annotations",
    ),
    "entries": (
        {"additionalPodMetadata": {"labels": MANY}},
        "spec.additionalPodMetadata.labels",
    ),
}


@pytest.mark.parametrize("what", UNUSABLE)
async def test_a_claim_that_cannot_be_used_names_the_field_and_takes_nothing(what: str) -> None:
    """Whatever the definition of the server let in; others are served, and so is it once mended."""
    fields, said = UNUSABLE[what]
    whole = claim()
    async with open_claims("m1", "m2") as world:
        world.plane.store.plant({**whole, "spec": {**whole["spec"], **fields}})
        await world.settle()
        await world.advance(60.0)
        assert ready_of(world)[0] == "False"
        assert said in ready_of(world)[2]
        assert len(ready_of(world)[2]) < 1000
        assert bound_name(world) == ""
        await world.create(claim("d"))
        assert bound_name(world, "d") == "m1"
        await world.patch(CLAIMS, "c", {"spec": dict.fromkeys(fields)})
        await world.advance(60.0)
        assert bound_name(world) == "m2"
