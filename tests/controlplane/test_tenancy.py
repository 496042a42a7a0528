"""What a tenant of one namespace cannot do to another, on a real control plane.

Each object of the attacker names an object of the victim as its controller, by a uid that is no
secret, and is held by a finalizer against the garbage collector. ``tests/tenancy`` has the same on
the embedded server, which tells more of what was written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
import pytest_asyncio

from lean_sandbox.model.names import name_hash
from tests.conformance.api import open_room
from tests.controlplane.objects import all_ready, condition, extension, fill, sandbox
from tests.controlplane.plugin import REAL
from tests.controlplane.scene import Scene

pytestmark = [pytest.mark.asyncio(loop_scope="module"), REAL]

Json = dict[str, Any]
_PREFIX = "agents.x-k8s.io"
_LONG_AGO = "2020-01-01T00:00:00Z"
# Longer than a reconcile, or what it leads to, takes here.
_A_WHILE_S = 3.0
# By then the controller's watch has shown an object.
_SEEN_S = 0.5


@dataclass(frozen=True, slots=True)
class Two:
    """A victim and an attacker, each with a namespace of their own."""

    victim: Scene
    attacker: Scene


@pytest_asyncio.fixture(loop_scope="module")
async def two(scene: Scene) -> AsyncIterator[Two]:
    """Give two namespaces; what the attacker holds by finalizers is let go at the end."""
    async with open_room(scene.room.api) as room:
        # The attacker's name comes first: whoever mixes the two and takes the first one is fooled.
        rooms = sorted((scene.room, room), key=lambda one: one.name)
        attacker, victim = (dataclasses.replace(scene, room=one) for one in rooms)
        yield Two(victim, attacker)
        for plural in ("sandboxes", "pods"):
            for one in await attacker.objects(plural):
                if one["metadata"].get("finalizers"):
                    free: Json = {"metadata": {"finalizers": []}}
                    await attacker.patch(plural, one["metadata"]["name"], free)


def reference(owner: Json, kind: str) -> Json:
    """Return a controller reference to an object."""
    group = "agents.x-k8s.io" if kind == "Sandbox" else "extensions.agents.x-k8s.io"
    return {
        "apiVersion": f"{group}/v1beta1",
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


async def forge(theirs: Scene, owner: Json, kind: str, name: str, **labels: str) -> Json:
    """Create the attacker's Sandbox."""
    body = sandbox(name)
    body["metadata"].update(
        ownerReferences=[reference(owner, kind)],
        finalizers=["example.com/hold"],
        labels={f"{_PREFIX}/{key.replace('_', '-')}": value for key, value in labels.items()},
    )
    made = await theirs.create("sandboxes", body)
    await anyio.sleep(_SEEN_S)
    return made


async def a_template(scene: Scene, **metadata: Json) -> None:
    """Create the template ``t``."""
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    body = extension("SandboxTemplate", "t", podTemplate={"metadata": metadata, "spec": spec})
    await scene.create("sandboxtemplates", body)


async def a_pool(scene: Scene) -> None:
    """Create the empty pool ``p`` of the template."""
    body = extension("SandboxWarmPool", "p", replicas=0, sandboxTemplateRef={"name": "t"})
    await scene.create("sandboxwarmpools", body)


async def a_claim(scene: Scene, **spec: Any) -> Json:
    """Create the claim ``c`` of the pool."""
    body = extension("SandboxClaim", "c", warmPoolRef={"name": "p"}, **spec)
    return await scene.create("sandboxclaims", body)


async def test_a_claim_takes_and_changes_no_sandbox_elsewhere(two: Two) -> None:
    """An unbound claim gets its own, and what names it elsewhere is not written to."""
    await a_template(two.victim, annotations={"internal/key": "of-the-template"})
    mine = {"annotations": {"my/key": "of-the-claim"}}
    made = await a_claim(two.victim, additionalPodMetadata=mine)
    taken = {"claim_uid": made["metadata"]["uid"], "launch_type": "warm"}
    trap = await forge(two.attacker, made, "SandboxClaim", "trap", **taken)
    await a_pool(two.victim)
    (claim,) = await two.victim.until("sandboxclaims", all_ready(1))
    assert claim["status"]["sandbox"]["name"] == "c"
    await anyio.sleep(_A_WHILE_S)
    (found,) = await two.attacker.objects("sandboxes")
    assert found["spec"] == trap["spec"]
    assert found["metadata"]["labels"] == trap["metadata"]["labels"]


async def test_a_claim_reports_its_own_addresses(two: Two) -> None:
    """A namesake elsewhere that names the claim is not where clients are sent."""
    await a_template(two.victim)
    await a_pool(two.victim)
    made = await a_claim(two.victim)
    await forge(two.attacker, made, "SandboxClaim", "c")
    path = f"{two.attacker.path('sandboxes')}/c/status"
    status = {"podIPs": ["6.6.6.6"]}
    (await two.attacker.room.api.patch(path, {"status": status})).ok()
    await two.victim.until("sandboxclaims", all_ready(1))
    await two.victim.patch(
        "sandboxclaims", "c", {"spec": {"additionalPodMetadata": {"labels": {}}}}
    )
    await anyio.sleep(_A_WHILE_S)
    (claim,) = await two.victim.objects("sandboxclaims")
    (own,) = await two.victim.objects("sandboxes")
    assert claim["status"]["sandbox"]["podIPs"] == own["status"]["podIPs"] != ["6.6.6.6"]


async def test_a_sandbox_counts_no_pods_elsewhere(two: Two) -> None:
    """It stays Ready, and its Pod is made again when it is gone."""
    made = await two.victim.create("sandboxes", sandbox())
    await two.victim.until("sandboxes", all_ready(1))
    metadata = {
        "name": "trap",
        "labels": {f"{_PREFIX}/sandbox-name-hash": name_hash("sb")},
        "ownerReferences": [reference(made, "Sandbox")],
        "finalizers": ["example.com/hold"],
    }
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    await two.attacker.create("pods", pod)
    await two.attacker.until("pods", bool)
    (before,) = await two.victim.objects("pods")
    await two.victim.delete("pods", "sb")
    await two.victim.until(
        "pods",
        lambda found: bool(found) and found[0]["metadata"]["uid"] != before["metadata"]["uid"],
    )
    await two.victim.until("sandboxes", all_ready(1))


async def test_an_expired_claim_deletes_its_own_sandbox(two: Two) -> None:
    """A Sandbox elsewhere that names the claim does not stand in for it."""
    await a_template(two.victim)
    await a_pool(two.victim)
    made = await a_claim(two.victim)
    await two.victim.until("sandboxclaims", all_ready(1))
    await forge(two.attacker, made, "SandboxClaim", "a-first")
    life = {"shutdownTime": _LONG_AGO, "shutdownPolicy": "Retain"}
    await two.victim.patch("sandboxclaims", "c", {"spec": {"lifecycle": life}})
    await two.victim.until("sandboxes", lambda found: not found)
    await two.victim.until("sandboxclaims", lambda found: condition(found[0], "Ready") == "False")


async def test_a_pool_counts_no_members_elsewhere(two: Two) -> None:
    """It is filled again, whatever names it as owner elsewhere."""
    await fill(two.victim, 3)
    (made,) = await two.victim.objects("sandboxwarmpools")
    for number in range(12):
        label = {"warm_pool_sandbox": name_hash("p")}
        await forge(two.attacker, made, "SandboxWarmPool", f"trap-{number}", **label)
    (first, *_) = await two.victim.objects("sandboxes")
    await two.victim.delete("sandboxes", first["metadata"]["name"])
    gone = first["metadata"]["uid"]
    await two.victim.until(
        "sandboxes",
        lambda found: all_ready(3)(found) and gone not in {o["metadata"]["uid"] for o in found},
    )
