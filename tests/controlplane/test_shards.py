"""Two shards with a standby each on a real control plane: who handles what, and a takeover.

Each process has a service account of its own, so that the audit log tells them apart, with the
permissions of ``manifests/overlays/shards``.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from lean_sandbox.clock import SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.manager import leaderelection
from lean_sandbox.manager.leaderelection import Elector
from lean_sandbox.manager.preflight import lease_of, scope_of
from lean_sandbox.model.shard import Shard, parse_shard
from tests.conformance.api import Room, answers
from tests.controlplane.objects import all_ready, extension, fill, sandbox
from tests.controlplane.plugin import REAL
from tests.controlplane.scene import HOME, SWIFT, Scene, ensure, open_stage
from tests.controlplane.server import RealServer
from tests.support.clients import connected
from tests.support.observable import ObservedManager
from tests.support.patience import PATIENCE_S

pytestmark = REAL

Json = dict[str, Any]
_OVERLAY = Path(__file__).resolve().parents[2] / "manifests" / "overlays" / "shards"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
# A standby takes over sooner than by default; a loaded machine still renews in time.
_TIMES = {"DURATION_S": 8, "RENEW_DEADLINE_S": 7.0, "RETRY_S": 0.4, "ATTEMPT_S": 3.0}
_MEMBERS = 3
_CLAIMS = 6
_RANGES = ("0/0x8000000000000000", "1/0x8000000000000000")


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Leases expire sooner than by default."""
    for name, value in _TIMES.items():
        monkeypatch.setattr(leaderelection, name, value)


def _path(kind: str) -> str:
    plural = f"{kind.lower()}s"
    if kind == "Namespace":
        return f"/api/v1/{plural}"
    if kind == "ServiceAccount":
        return f"/api/v1/namespaces/{HOME}/{plural}"
    scope = "" if kind.startswith("Cluster") else f"namespaces/{HOME}/"
    return f"{_RBAC}/{scope}{plural}"


def _install(server: RealServer, accounts: Iterable[str]) -> dict[str, str]:
    """Give accounts the permissions of the overlay; return their tokens."""
    rendered = subprocess.run(  # noqa: S603 - fixed arguments
        ["kubectl", "kustomize", str(_OVERLAY)],  # noqa: S607 - wherever the machine has it
        check=True,
        capture_output=True,
    ).stdout
    bodies = list(yaml.safe_load_all(rendered))
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": HOME} for name in accounts]
    # What others refer to comes first.
    for kind in ("Namespace", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"):
        for body in (one for one in bodies if one["kind"] == kind):
            if kind.endswith("Binding"):
                metadata = {**body["metadata"], "name": f"shards-{body['metadata']['name']}"}
                ensure(server, _path(kind), {**body, "metadata": metadata, "subjects": subjects})
            else:
                ensure(server, _path(kind), body)
    tokens = {}
    for name in accounts:
        ensure(server, _path("ServiceAccount"), {"metadata": {"name": name}})
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = server.ask("POST", f"{_path('ServiceAccount')}/{name}/token", request)
        tokens[name] = str(answer["status"]["token"])
    return tokens


class Process:
    """One replica of a shard."""

    def __init__(self, name: str, controller: ObservedManager, elector: Elector) -> None:
        """Hold the parts."""
        self.user = f"system:serviceaccount:{HOME}:{name}"
        self.controller = controller
        self.elector = elector
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        """Run until killed."""
        with self.scope:
            await self.controller.run()


@asynccontextmanager
async def _processes(
    server: RealServer, folder: Path, wanted: dict[str, Settings]
) -> AsyncIterator[list[Process]]:
    """Start processes one after the other, by the names of their accounts."""
    tokens = _install(server, wanted)
    clock = SystemClock()

    async def process(stack: AsyncExitStack, name: str, settings: Settings) -> Process:
        connection = load(str(server.kubeconfig(folder / name, tokens[name])))
        client, own = [
            await stack.enter_async_context(connected(connection, user_agent=name))
            for _ in range(2)
        ]
        elector = Elector(
            own,
            namespace=HOME,
            identity=name,
            clock=clock,
            lease=lease_of(settings),
            scope=scope_of(settings),
        )
        controller = ObservedManager(client, settings, clock=clock, elector=elector)
        return Process(name, controller, elector)

    async with AsyncExitStack() as stack, anyio.create_task_group() as group:
        made = []
        for name, settings in wanted.items():
            made.append(await process(stack, name, settings))
            group.start_soon(made[-1].run)
            with anyio.fail_after(PATIENCE_S):
                await made[-1].controller.synced.wait()
                if name.endswith("leader"):
                    await made[-1].elector.acquired.wait()
        yield made
        group.cancel_scope.cancel()


@asynccontextmanager
async def _rooms(stage: Scene, split: str) -> AsyncIterator[list[list[Scene]]]:
    """Make two namespaces for each of two shards."""
    rooms: list[list[Scene]] = [[], []]
    number = 0
    is_first = parse_shard(_RANGES[0] if split == "ranges" else "0/2").admits
    while min(map(len, rooms)) < 2:
        # Names alike in all but their end are neighbours in the server's hash.
        name = f"{number}-shards-{split}"
        number += 1
        own = rooms[0 if is_first(name) else 1]
        if len(own) == 2:
            continue
        api = stage.room.api
        (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok()
        await answers(api, f"/api/v1/namespaces/{name}/serviceaccounts/default")
        own.append(dataclasses.replace(stage, room=Room(api, name)))
    yield rooms
    for scene in (*rooms[0], *rooms[1]):
        await scene.room.api.delete(f"/api/v1/namespaces/{scene.room.name}")


def _asked(server: RealServer, begun: int, user: str) -> Iterator[tuple[str, str, int]]:
    """Yield namespace, verb with resource, and code of a user's requests, but for Leases."""
    with server.audit_log.open("rb") as file:
        file.seek(begun)
        for line in file:
            if user.encode() not in line or not line.endswith(b"\n"):
                continue
            entry = json.loads(line)
            reference = entry.get("objectRef", {})
            if entry["user"]["username"] == user and reference.get("resource") != "leases":
                code = entry.get("responseStatus", {}).get("code", 0)
                what = f"{entry['verb']} {reference.get('resource')}"
                yield reference.get("namespace", ""), what, code


def _settings(split: str, first: list[Scene]) -> tuple[Settings, Settings]:
    """Return the settings of the two shards."""
    if split != "names":
        one, two = map(parse_shard, _RANGES if split == "ranges" else ("0/2", "1/2"))
        return Settings(extensions=True, shard=one), Settings(extensions=True, shard=two)
    names = tuple(scene.room.name for scene in first)
    leases = [lease_of(Settings(shard=Shard(index, 2))) for index in (0, 1)]
    return (
        Settings(extensions=True, namespaces=names, leader_election_lease=leases[0]),
        Settings(extensions=True, exclude_namespaces=names, leader_election_lease=leases[1]),
    )


@pytest.mark.parametrize("split", ["hash", "ranges", "names"])
async def test_two_shards_share_the_load_and_a_dead_one_is_succeeded(
    real_server: RealServer, tmp_path: Path, split: str
) -> None:
    """Each object is handled by one of them; its standby doubles neither a bind nor a member."""
    async with open_stage(real_server, tmp_path, SWIFT) as stage, _rooms(stage, split) as rooms:
        scenes = [*rooms[0], *rooms[1]]
        begun = real_server.audit_log.stat().st_size
        roles = ("leader", "standby")
        wanted = {
            f"shard-{index}-{role}": given
            for index, given in enumerate(_settings(split, rooms[0]))
            for role in roles
        }
        async with _processes(real_server, tmp_path, wanted) as processes:
            dying, heir, other, idle = processes
            assert dying.elector.is_leader
            assert other.elector.is_leader
            for scene in scenes:
                await fill(scene, _MEMBERS)
                await scene.create("sandboxes", sandbox("cold"))
                await scene.until("sandboxes", all_ready(_MEMBERS + 1))
            claimed = begin_claims(scenes)
            async for scene in claimed:
                if scene in rooms[0] and dying.scope.cancel_called is False:
                    # In the middle of the binds of its namespace.
                    await scene.until("sandboxclaims", lambda found: any(map(_bound, found)))
                    dying.scope.cancel()
            for scene in scenes:
                await scene.until("sandboxclaims", all_ready(_CLAIMS))
                await scene.until("sandboxes", all_ready(_MEMBERS + 1 + _CLAIMS))
            assert heir.elector.is_leader
            assert other.elector.is_leader
            for scene in scenes:
                await check_nothing_is_doubled(scene)
        names = [{scene.room.name for scene in own} for own in rooms]
        for number, process in enumerate(processes):
            own, others = names if number < 2 else names[::-1]
            asked = list(_asked(real_server, begun, process.user))
            if split == "ranges":
                caches = process.controller.all_caches
                assert sum(cache.dropped_elsewhere for cache in caches) == 0
            assert [(process.user, *one) for one in asked if one[0] in others] == []
            handled = {namespace for namespace, what, _ in asked if not what.startswith("watch")}
            assert bool(handled & own) == (process is not idle), process.user
            assert [one for one in asked if one[0] in own and one[2] == 403] == []
            # What is too much would have to go again. Creates do not tell: one of a dead process
            # may have been carried out and be in the log as 504.
            assert [one for one in asked if one[0] in own and one[1] == "delete sandboxes"] == []


def _bound(claim: Json) -> bool:
    return bool(claim.get("status", {}).get("sandbox", {}).get("name"))


async def begin_claims(scenes: list[Scene]) -> AsyncIterator[Scene]:
    """Create the claims of each namespace, at once there, one namespace after the other."""
    for scene in scenes:
        async with anyio.create_task_group() as group:
            for number in range(_CLAIMS):
                body = extension("SandboxClaim", f"c-{number}", warmPoolRef={"name": "p"})
                group.start_soon(scene.create, "sandboxclaims", body)
        yield scene


async def check_nothing_is_doubled(scene: Scene) -> None:
    """Each claim has one Sandbox of its own, the pool its members, each Sandbox one Pod."""
    bound = [one["status"]["sandbox"]["name"] for one in await scene.objects("sandboxclaims")]
    assert len(set(bound)) == _CLAIMS
    owners: Counter[str] = Counter()
    sandboxes = await scene.objects("sandboxes")
    for one in sandboxes:
        for owner in one["metadata"].get("ownerReferences", []):
            owners[owner["kind"]] += 1
    assert owners == {"SandboxClaim": _CLAIMS, "SandboxWarmPool": _MEMBERS}
    pods = [one["metadata"]["ownerReferences"][0]["uid"] for one in await scene.objects("pods")]
    assert sorted(pods) == sorted(one["metadata"]["uid"] for one in sandboxes)
