"""Bad days of the controller on a real control plane: what is missing, refused, expired or gone.

They break the server they run on, so it is one of their own, shared by the tests of this module.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import time
import urllib.error
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import Process

from lean_sandbox.clock import SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_FAILED, EXIT_OK
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.manager.preflight import LEASE_NAME
from lean_sandbox.model.times import format_micro_time
from tests.controlplane.binaries import provide
from tests.controlplane.plugin import REAL
from tests.controlplane.server import RealServer, started
from tests.model.crds.definitions import definitions
from tests.support.builders import claim, pool, template
from tests.support.clients import connected
from tests.support.names import SANDBOXES
from tests.support.observable import ObservedManager
from tests.support.patience import PATIENCE_S
from tests.support.process import controller_process
from tests.support.world import running_status

pytestmark = REAL

Json = dict[str, Any]
BY_NAME: dict[str, Json] = {one["metadata"]["name"]: one for one in definitions().values()}
HOME = "agent-sandbox-system"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
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


class RefusedError(Exception):
    """The server said no to the test; ``code`` is its status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


async def ask(server: RealServer, method: str, path: str, body: Json | None = None) -> Json:
    """Ask as the administrator, beside the event loop. Raises RefusedError."""
    try:
        return await anyio.to_thread.run_sync(server.ask, method, path, body)
    except urllib.error.HTTPError as error:
        with error:
            raise RefusedError(error.code) from None


def refused(made: ObservedManager) -> bool:
    """Tell whether the server did not know the controller in a request."""
    asked = made._client.transport.counted.requests
    return any(code == HTTPStatus.UNAUTHORIZED for *_, code in asked)


async def until(check: Callable[[], Awaitable[object]] | Callable[[], object]) -> None:
    """Wait until something holds."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            found = check()
            if await found if isinstance(found, Awaitable) else found:
                return
            await anyio.sleep(0.05)


async def gone(server: RealServer, path: str) -> None:
    """Wait until there is no such object."""

    async def is_gone() -> bool:
        try:
            await ask(server, "GET", path)
        except RefusedError as refused:
            return refused.code == 404
        return False

    await until(is_gone)


async def apply(server: RealServer, *names: str) -> None:
    """Serve our definitions, replacing what is there."""
    for name in names:
        # It may not be there.
        with contextlib.suppress(RefusedError):
            await ask(server, "DELETE", f"{_CRDS}/{name}")
        await gone(server, f"{_CRDS}/{name}")
    await anyio.to_thread.run_sync(server.define, [BY_NAME[name] for name in names])


async def defined(server: RealServer) -> None:
    """Serve our definitions; a busy server may take a minute to end one that has objects."""
    found = await ask(server, "GET", _CRDS)
    there = {one["metadata"]["name"] for one in found["items"]}
    missing = [one for name, one in BY_NAME.items() if name not in there]
    await anyio.to_thread.run_sync(server.define, missing)


@asynccontextmanager
async def namespace(server: RealServer, name: str) -> AsyncIterator[str]:
    """Give a namespace, which is deleted afterwards."""
    await ask(server, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        yield name
    finally:
        with anyio.CancelScope(shield=True):
            await ask(server, "DELETE", f"/api/v1/namespaces/{name}")


async def create(server: RealServer, place: str, name: str) -> None:
    """Create a Sandbox."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    body = {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": name},
        "spec": {"podTemplate": template},
    }
    path = f"/apis/agents.x-k8s.io/v1beta1/namespaces/{place}/sandboxes"

    async def is_taken() -> bool:
        # Right after a definition was made the server answers 404 or 429 for a moment.
        try:
            await ask(server, "POST", path, body)
        except RefusedError as refused:
            return refused.code == 409
        return True

    await until(is_taken)


async def pods(server: RealServer, place: str) -> set[str]:
    """Return the names of the Pods."""
    found = await ask(server, "GET", f"/api/v1/namespaces/{place}/pods")
    return {pod["metadata"]["name"] for pod in found["items"]}


async def has_pod(server: RealServer, place: str, name: str) -> None:
    """Wait until a Sandbox was launched."""

    async def is_there() -> bool:
        return name in await pods(server, place)

    await until(is_there)


@asynccontextmanager
async def controller(kubeconfig: Path, settings: Settings) -> AsyncIterator[ObservedManager]:
    """Run a controller, whatever the server serves."""
    async with connected(load(str(kubeconfig))) as client, anyio.create_task_group() as group:
        made = ObservedManager(client, settings, clock=SystemClock())
        group.start_soon(made.run)
        yield made
        group.cancel_scope.cancel()


def process(kubeconfig: Path, log: Path, *flags: str) -> AbstractAsyncContextManager[Process]:
    """Run a controller as a process."""
    return controller_process(kubeconfig, "--context=real", *flags, log=log)


def account(server: RealServer, name: str) -> str:
    """Create a service account and return a token of it."""
    path = f"/api/v1/namespaces/{HOME}/serviceaccounts"
    server.ask("POST", path, {"metadata": {"name": name}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(server.ask("POST", f"{path}/{name}/token", request)["status"]["token"])


def role(server: RealServer, name: str, rules: list[Json]) -> None:
    """Bind an account to rules of its own."""
    server.ask("POST", f"{_RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    group = "rbac.authorization.k8s.io"
    server.ask(
        "POST",
        f"{_RBAC}/clusterrolebindings",
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": HOME, "name": name}],
        },
    )


EVERYTHING: list[Json] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


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
        await ask(server, "DELETE", f"{_CRDS}/{SANDBOXES}")
        await gone(server, f"{_CRDS}/{SANDBOXES}")
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
    path = f"{_RBAC}/clusterroles/narrow"
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
