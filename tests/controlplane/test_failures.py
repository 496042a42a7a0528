"""Bad days of the controller on a real control plane: what is missing, refused, expired or gone.

They break the server they run on, so it is one of their own, shared by the tests of this module.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.to_thread
import pytest

from lean_sandbox.clock import SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_FAILED, EXIT_OK
from lean_sandbox.manager.preflight import LEASE_NAME
from lean_sandbox.model.times import format_micro_time
from tests.controlplane.binaries import provide
from tests.controlplane.breaking import (
    BY_NAME,
    CRDS,
    EVERYTHING,
    HOME,
    RBAC,
    account,
    apply,
    ask,
    controller,
    create,
    defined,
    gone,
    has_pod,
    namespace,
    pods,
    process,
    refused,
    role,
    until,
)
from tests.controlplane.plugin import REAL
from tests.controlplane.server import RealServer, started
from tests.support.builders import claim, pool, template
from tests.support.names import SANDBOXES
from tests.support.patience import PATIENCE_S
from tests.support.world import running_status

pytestmark = REAL

Json = dict[str, Any]
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
_MEMBERS = 5


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    """Give a control plane without any of our definitions."""
    programs = provide(os.environ, print)
    with (
        TemporaryDirectory(prefix="lean-sandbox-") as folder,
        started(programs, Path(folder), []) as made,
    ):
        made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
        yield made


# -- definitions -----------------------------------------------------------------------------------


async def test_missing_definitions_are_named_waited_for_and_taken_up(
    server: RealServer, tmp_path: Path
) -> None:
    """All four, then one of another version, then one deleted under the controller."""
    kubeconfig = server.kubeconfig(tmp_path / "config", server.token)
    settings = Settings(extensions=True, sandbox_status_window=0.0)
    async with namespace(server, "kinds") as place, controller(kubeconfig, settings) as made:
        await until(lambda: len(made.problems) == len(BY_NAME))
        for name in BY_NAME:
            problem = made.problems[name.partition(".")[0]]
            assert f"the CustomResourceDefinition {name} is missing" in problem
        others = [name for name in BY_NAME if name != SANDBOXES]
        other = copy.deepcopy(BY_NAME[SANDBOXES])
        other["spec"]["versions"][0]["name"] = "v1alpha1"
        await anyio.to_thread.run_sync(server.define, [*(BY_NAME[name] for name in others), other])
        await until(lambda: list(made.problems) == ["sandboxes"])
        assert "serves other versions than v1beta1" in made.problems["sandboxes"]
        assert not made.synced.is_set()
        await apply(server, SANDBOXES)
        await until(made.synced.is_set)
        await create(server, place, "one")
        await has_pod(server, place, "one")
        await until(lambda: not made.problems)
        await ask(server, "DELETE", f"{CRDS}/{SANDBOXES}")
        await gone(server, f"{CRDS}/{SANDBOXES}")
        await until(lambda: "is missing" in made.problems.get("sandboxes", ""))
        assert set(made.problems) == {"sandboxes"}
        assert len(made.caches.sandboxes) == 0
        await apply(server, SANDBOXES)
        await create(server, place, "two")
        await has_pod(server, place, "two")
        await until(lambda: not made.problems)


# -- permissions and credentials -------------------------------------------------------------------


async def test_a_right_that_is_missing_is_named_and_its_return_noticed(
    server: RealServer, tmp_path: Path
) -> None:
    """A right to watch at the start, a right to create under way: named by verb and resource."""
    await defined(server)
    token = account(server, "narrow")
    path = f"{RBAC}/clusterroles/narrow"
    kinds = ("sandboxes", "sandboxes/status", "pods", "services", "events")

    def rules(without: str = "", *verbs: str) -> list[Json]:
        all_verbs = ("create", "delete", "get", "list", "patch", "update", "watch")
        return [
            {
                "apiGroups": ["*"],
                "resources": [kind],
                "verbs": [one for one in all_verbs if kind != without or one not in verbs],
            }
            for kind in kinds
        ]

    async def grant(found: list[Json]) -> None:
        await ask(server, "PUT", path, {"metadata": {"name": "narrow"}, "rules": found})

    role(server, "narrow", rules("services", "list"))
    kubeconfig = server.kubeconfig(tmp_path / "config", token)
    settings = Settings(sandbox_status_window=0.0)
    async with namespace(server, "rights") as place, controller(kubeconfig, settings) as made:
        await until(lambda: "services" in made.problems)
        assert "allow verb 'list' on resource 'services'" in made.problems["services"]
        assert not made.synced.is_set()
        await grant(rules("pods", "create"))
        await until(made.synced.is_set)
        await create(server, place, "one")
        sandbox = f"/apis/agents.x-k8s.io/v1beta1/namespaces/{place}/sandboxes/one"

        async def is_told() -> bool:
            status = (await ask(server, "GET", sandbox)).get("status", {})
            said = [one["message"] for one in status.get("conditions", [])]
            return any('cannot create resource "pods"' in message for message in said)

        await until(is_told)
        await grant(rules())
        await has_pod(server, place, "one")


async def test_a_refused_token_is_named_and_the_renewed_file_is_read(
    server: RealServer, tmp_path: Path
) -> None:
    """The account is made anew, so its tokens are worth nothing: 401, until the file is renewed."""
    await defined(server)
    token = tmp_path / "token"
    token.write_text(await anyio.to_thread.run_sync(account, server, "renewed"))
    role(server, "renewed", EVERYTHING)
    kubeconfig = server.kubeconfig(tmp_path / "config", "")
    content = json.loads(kubeconfig.read_text())
    content["users"][0]["user"] = {"tokenFile": str(token)}
    kubeconfig.write_text(json.dumps(content))
    settings = Settings(sandbox_status_window=0.0)
    async with namespace(server, "tokens") as place, controller(kubeconfig, settings) as made:
        await until(made.synced.is_set)
        path = f"/api/v1/namespaces/{HOME}/serviceaccounts/renewed"
        await ask(server, "DELETE", path)
        # The server believes a token that it has seen lately for ten seconds.
        fresh = await anyio.to_thread.run_sync(account, server, "renewed")
        await anyio.sleep(11.0)
        await create(server, place, "one")
        await until(lambda: refused(made))
        assert await pods(server, place) == set()
        token.write_text(fresh)
        await has_pod(server, place, "one")


# -- the server ------------------------------------------------------------------------------------


async def test_a_restarted_server_is_come_back_to(server: RealServer, tmp_path: Path) -> None:
    """Killed, away for some seconds, back: what happened meanwhile is seen, no Pod comes twice."""
    await defined(server)
    kubeconfig = server.kubeconfig(tmp_path / "config", server.token)
    settings = Settings(sandbox_status_window=0.0)
    async with namespace(server, "restarts") as place, controller(kubeconfig, settings) as made:
        await until(made.synced.is_set)
        await create(server, place, "one")
        await has_pod(server, place, "one")
        await anyio.to_thread.run_sync(_restart, server)
        await create(server, place, "two")
        await has_pod(server, place, "two")
        await until(lambda: not made.problems)
        assert await pods(server, place) == {"one", "two"}


def _restart(server: RealServer) -> None:
    server.kill("kube-apiserver")
    time.sleep(3.0)
    server.start("kube-apiserver")


# -- beside another controller ---------------------------------------------------------------------


@contextmanager
def lease_of(server: RealServer, holder: str) -> Iterator[None]:
    """Hold the Lease of the controllers."""
    now = format_micro_time(SystemClock().now())
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    server.ask("POST", _LEASES, {**body, "metadata": {"name": LEASE_NAME}, "spec": spec})
    try:
        yield
    finally:
        server.ask("DELETE", f"{_LEASES}/{LEASE_NAME}")


async def test_a_run_with_a_context_refuses_beside_a_live_controller(
    server: RealServer, tmp_path: Path
) -> None:
    """The message names the holder, or the Deployment, and the flag; without them it serves."""
    await defined(server)
    kubeconfig = server.kubeconfig(tmp_path / "config", server.token)
    log = tmp_path / "log"
    with lease_of(server, "pod-7_abc"):
        async with process(kubeconfig, log) as refused:
            with anyio.fail_after(PATIENCE_S):
                assert await refused.wait() == EXIT_CONFIG
    assert "'pod-7_abc' holds its Lease" in log.read_text()
    deployments = f"/apis/apps/v1/namespaces/{HOME}/deployments"
    name = "agent-sandbox-controller"
    labels = {"app": "x"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    made = await ask(server, "POST", deployments, {"metadata": {"name": name}, "spec": spec})
    made["status"] = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    await ask(server, "PUT", f"{deployments}/{name}/status", made)
    async with process(kubeconfig, log) as refused:
        with anyio.fail_after(PATIENCE_S):
            assert await refused.wait() == EXIT_CONFIG
    assert f"Deployment {HOME}/{name} has 1 available" in log.read_text()
    assert "--allow-second-controller" in log.read_text()
    await ask(server, "DELETE", f"{deployments}/{name}")
    async with namespace(server, "alone") as place, process(kubeconfig, log) as alone:
        await create(server, place, "one")
        await has_pod(server, place, "one")
        alone.terminate()
        with anyio.fail_after(PATIENCE_S):
            assert await alone.wait() == EXIT_OK


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
async def test_a_newer_process_takes_over_in_a_burst_and_nothing_is_served_by_both(
    server: RealServer, tmp_path: Path, end: signal.Signals
) -> None:
    """By the audit log: what the first wrote comes before all that the second wrote.

    Claims are each bound once, and there is no Sandbox too many. A process that was stopped for
    longer than the Lease goes on at the end, and writes nothing.
    """
    await defined(server)
    place_name = f"rolling-{end.name.lower()}"
    flags = ("--leader-elect", f"--leader-election-namespace={place_name}", "--extensions")
    configs = {}
    for name in (f"{place_name}-old", f"{place_name}-new"):
        token = await anyio.to_thread.run_sync(account, server, name)
        role(server, name, EVERYTHING)
        configs[name] = server.kubeconfig(tmp_path / name, token)
    old, new = configs
    async with namespace(server, place_name) as place:

        async def all_of(kind: str, group: str = "extensions.agents.x-k8s.io") -> list[Json]:
            path = f"/apis/{group}/v1beta1/namespaces/{place}/{kind}"
            found: list[Json] = (await ask(server, "GET", path))["items"]
            return found

        async def are_bound() -> bool:
            claims = await all_of("sandboxclaims")
            return all(one.get("status", {}).get("sandbox", {}).get("name") for one in claims)

        async def work(numbers: range) -> None:
            for number in numbers:
                await create(server, place, f"sb-{number}")
                await extend(server, place, claim(f"c-{number}"))

        async with process(configs[old], tmp_path / "old.log", *flags) as first:
            await extend(server, place, template(), pool(replicas=_MEMBERS))
            await run_pods(server, place, _MEMBERS)
            async with process(configs[new], tmp_path / "new.log", *flags) as second:
                await work(range(10))
                first.send_signal(end)
                if end is not signal.SIGSTOP:
                    await first.wait()
                await work(range(10, 20))
                for number in range(20):
                    await has_pod(server, place, f"sb-{number}")
                await until(are_bound)
                await run_pods(server, place, 40 + _MEMBERS)
                if end is signal.SIGSTOP:
                    first.send_signal(signal.SIGCONT)
                await create(server, place, "late")
                await has_pod(server, place, "late")
                with anyio.fail_after(PATIENCE_S):
                    if end is signal.SIGSTOP:
                        assert await first.wait() == EXIT_FAILED
                    second.terminate()
                    assert await second.wait() == EXIT_OK
        bound = [one["status"]["sandbox"]["name"] for one in await all_of("sandboxclaims")]
        assert len(set(bound)) == len(bound) == 20
        sandboxes = await all_of("sandboxes", "agents.x-k8s.io")
        assert len(sandboxes) == 41 + _MEMBERS
        assert await pods(server, place) == {one["metadata"]["name"] for one in sandboxes}
        writers, created = _writes(server, place)
        changed = writers.index(new)
        assert set(writers[:changed]) == {old}
        assert set(writers[changed:]) == {new}
        assert len(created) == len(set(created))


async def extend(server: RealServer, place: str, *bodies: Json) -> None:
    """Create templates, pools or claims."""
    for body in bodies:
        path = f"/apis/{body['apiVersion']}/namespaces/{place}/{body['kind'].lower()}s"
        await ask(server, "POST", path, {**body, "metadata": {"name": body["metadata"]["name"]}})


async def run_pods(server: RealServer, place: str, number: int) -> None:
    """Wait until there are so many Pods, and let them run as a kubelet does."""

    async def are_there() -> bool:
        return len(await pods(server, place)) >= number

    await until(are_there)
    path = f"/api/v1/namespaces/{place}/pods"
    for pod in (await ask(server, "GET", path))["items"]:
        pod["status"] |= running_status()
        await ask(server, "PUT", f"{path}/{pod['metadata']['name']}/status", pod)


def _writes(server: RealServer, place: str) -> tuple[list[str], list[str]]:
    """Return who wrote, in the order of the requests, and the names of the Pods created."""
    entries = []
    for line in server.audit_log.read_text().splitlines():
        entry = json.loads(line)
        reference = entry.get("objectRef", {})
        user = entry["user"].get("username", "")
        is_ours = user.startswith(f"system:serviceaccount:{HOME}:{place}-")
        is_write = entry["verb"] in ("create", "update", "patch", "delete")
        is_work = reference.get("resource") not in ("leases", "events")
        if is_ours and is_write and is_work and reference.get("namespace") == place:
            entries.append(entry)
    entries.sort(key=lambda one: str(one["requestReceivedTimestamp"]))
    created = [
        # The body has the name; the path of a create does not.
        entry["objectRef"].get("name", "")
        for entry in entries
        if entry["verb"] == "create"
        and entry["objectRef"]["resource"] == "pods"
        and entry["responseStatus"]["code"] == 201
    ]
    return [entry["user"]["username"].rpartition(":")[2] for entry in entries], created
