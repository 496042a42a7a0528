"""Which objects the safety net leaves alone: those that are as they are to be."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from lean_sandbox.controllers.claim.controller import ClaimController
from lean_sandbox.controllers.sandbox.controller import SandboxController
from lean_sandbox.controllers.warmpool.controller import PoolController
from lean_sandbox.model.claim import BoundSandbox
from lean_sandbox.model.conditions import Condition
from lean_sandbox.watch.kind import Key
from tests.support.builders import claim
from tests.support.extensions import open_claims
from tests.support.names import POOLS
from tests.support.world import NS, World

T = TypeVar("T")
REPLACE = msgspec.structs.replace
SETTLED = (
    *("InvalidMetadata", "EnvVarsInjectionRejected", "VolumeClaimTemplatesError"),
    *("InvalidConfiguration", "PodSucceeded", "PodFailed", "SandboxSuspended", "SandboxExpired"),
)
OPEN = ("", "SandboxNotReady", "DependenciesNotReady", "WarmPoolNotFound", "ReconcilerError")


def controller(world: World, kind: type[T]) -> T:
    """Return a controller."""
    return next(one for one in world.whole.controllers if isinstance(one, kind))


def known(entry: T | None) -> T:
    """Return an entry that is there."""
    assert entry is not None
    return entry


def ready(status: str, reason: str, generation: int) -> tuple[Condition, ...]:
    """Return the condition Ready."""
    return (Condition("Ready", status, reason, observedGeneration=generation),)


async def test_a_claim_is_final_that_has_a_sandbox_as_its_status_says() -> None:
    """Or that says, of its present generation, what only a change of an object can mend."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(5.0)
        judge = controller(world, ClaimController).is_final
        entry = known(world.whole.caches.claims.get(Key(NS, "c")))
        status = known(entry.status)
        bound = status.bound

        def says(state: str, reason: str, of: int = entry.generation) -> bool:
            conditions = ready(state, reason, of)
            return judge(REPLACE(entry, status=REPLACE(status, conditions=conditions)))

        def has(name: str, ips: tuple[str, ...]) -> bool:
            other = BoundSandbox(name=name, podIPs=ips)
            return judge(REPLACE(entry, status=REPLACE(status, bound=other)))

        assert judge(entry)
        assert not judge(REPLACE(entry, generation=entry.generation + 1))
        assert not judge(REPLACE(entry, view=None))
        assert not judge(REPLACE(entry, status=None))
        assert not judge(REPLACE(entry, status=REPLACE(status, conditions=())))
        assert not says("True", "DependenciesReady", entry.generation + 1)
        for reason in SETTLED:
            assert says("False", reason)
            assert not says("False", reason, entry.generation + 1)
        for reason in OPEN:
            assert not says("False", reason)
        # It has a Sandbox yet that is to go.
        assert not says("False", "ClaimExpired")
        assert judge(
            REPLACE(
                entry,
                uid="another",
                status=REPLACE(status, conditions=ready("False", "ClaimExpired", entry.generation)),
            )
        )
        assert has(bound.name, bound.podIPs)
        assert not has("m2", bound.podIPs)
        assert not has(bound.name, ("10.0.0.9",))


async def test_a_sandbox_is_final_that_is_up_or_stays_as_it_is() -> None:
    """Its Pod is known, and its status is about its present generation."""
    async with open_claims("m1") as world:
        judge = controller(world, SandboxController).is_final
        entry = known(world.whole.caches.sandboxes.get(Key(NS, "m1")))
        status = known(entry.status)

        def says(*conditions: Condition, of: Any = entry) -> bool:
            return judge(REPLACE(of, status=REPLACE(status, conditions=conditions)))

        def about(state: str, reason: str) -> Condition:
            return ready(state, reason, entry.generation)[0]

        assert judge(entry)
        assert not judge(REPLACE(entry, generation=entry.generation + 1))
        assert not judge(REPLACE(entry, status=None))
        assert not says()
        assert not says(*ready("True", "DependenciesReady", entry.generation + 1))
        assert says(about("True", "DependenciesReady"))
        assert not says(about("True", "DependenciesReady"), of=REPLACE(entry, uid="another"))
        assert not says(about("False", "DependenciesNotReady"))
        assert says(about("False", "InvalidConfiguration"))
        finished = Condition("Finished", "True", "PodSucceeded")
        assert says(about("False", "PodSucceeded"), finished)
        assert not says(about("False", "PodSucceeded"), REPLACE(finished, status="False"))
        idle = REPLACE(entry, view=REPLACE(known(entry.view), is_suspended=True))
        assert not says(about("False", "SandboxSuspended"), of=idle)
        for reason, is_final in (("PodTerminated", True), ("PodNotTerminated", False)):
            suspended = Condition("Suspended", str(is_final), reason)
            assert says(about("False", "SandboxSuspended"), suspended, of=idle) is is_final


@pytest.mark.parametrize("replicas", [0, 1])
async def test_a_pool_is_final_that_is_full_and_says_so(replicas: int) -> None:
    """One whose spec cannot be read waits for whoever mends it."""
    async with open_claims(*("m1",)[:replicas]) as world:
        await world.advance(5.0)
        judge = controller(world, PoolController).is_final
        entry = known(world.whole.caches.pools.get(Key(NS, "pool")))
        status = known(entry.status)
        assert judge(entry)
        assert judge(REPLACE(entry, view=None))
        assert not judge(REPLACE(entry, status=None))
        assert not judge(REPLACE(entry, generation=entry.generation + 1))
        for field in ("replicas", "readyReplicas", "observedGeneration"):
            other = REPLACE(status, **{field: getattr(status, field) + 1})
            assert not judge(REPLACE(entry, status=other))


async def test_a_pool_is_waited_for_by_whoever_changed_it() -> None:
    """Until it has been full once with its present spec; one that is going is not."""
    async with open_claims("m1") as world:
        pools = controller(world, PoolController)
        key = Key(NS, "pool")
        assert not pools.is_awaited(key)
        assert not pools.is_awaited(Key(NS, "other"))
        world.plane.fail_next("create", "sandboxes", 500, times=100)
        await world.patch(POOLS, "pool", {"spec": {"replicas": 3}})
        assert pools.is_awaited(key)
        kept = {"metadata": {"finalizers": ["example.com/keep"]}}
        await world.patch(POOLS, "pool", kept)
        await world.delete(POOLS, "pool")
        assert not pools.is_awaited(key)
