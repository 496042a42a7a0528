"""What a user of kubectl sees of the four kinds while the controller works.

That kubectl works with the API server at all is shown in ``tests/conformance/test_kubectl.py``.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.controlplane.objects import all_ready, extension, fill, sandbox
from tests.controlplane.plugin import REAL
from tests.controlplane.scene import Scene
from tests.support.patience import PATIENCE_S, patient
from tests.support.volumes import VOLUME

pytestmark = [pytest.mark.asyncio(loop_scope="module"), REAL]

Json = dict[str, Any]
Run = Callable[..., Coroutine[Any, Any, str]]

PATIENTLY = f"--timeout={PATIENCE_S}s"


class RefusedError(Exception):
    """kubectl ended with an error; the message is what it said."""


@pytest.fixture
def kubectl(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Give a function that runs kubectl as the user, in the namespace of the test."""
    assert shutil.which("kubectl") is not None, "kubectl is not installed"
    home = tmp_path_factory.mktemp("kubectl")
    config = scene.server.kubeconfig(home / "config", scene.server.token)

    async def run(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            f"--kubeconfig={config}",
            f"--cache-dir={home / 'cache'}",
            f"--namespace={scene.room.name}",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, error = await process.communicate()
        if process.returncode != 0:
            raise RefusedError(error.decode())
        return out.decode()

    return run


def rows(table: str, *wide: str) -> list[list[str]]:
    """Return the cells of a table, but for the ages; ``wide`` are the columns that follow these."""
    lines = [line.split() for line in table.splitlines()]
    ages = lines[0].index("AGE")
    assert tuple(lines[0][ages + 1 :]) == wide
    return [line[:ages] for line in lines]


async def claimed(scene: Scene, name: str = "c", **spec: Any) -> str:
    """Create a claim on the pool ``p``, wait until it is Ready, and return its Sandbox's name."""
    body = extension("SandboxClaim", name, warmPoolRef={"name": "p"}, **spec)
    await scene.create("sandboxclaims", body)
    (claim,) = await scene.until("sandboxclaims", all_ready(1))
    return str(claim["status"]["sandbox"]["name"])


async def described(kubectl: Run, kind: str, name: str, *reasons: str) -> str:
    """Return the Events that ``describe`` shows, once these are among them."""
    shown = ""
    # Events are written behind everything else, and only shown where kubectl finds them.
    with patient(f"told of {reasons}", lambda: shown):
        while not all(reason in shown for reason in reasons):
            shown = (await kubectl("describe", kind, name)).partition("\nEvents:")[2]
    return shown


@pytest.mark.parametrize("is_wide", [False, True])
async def test_each_kind_shows_its_columns(kubectl: Run, scene: Scene, *, is_wide: bool) -> None:
    """Readiness, its reason, who is bound to whom; the wide form shows where and since when."""
    await fill(scene, 2)
    taken = await claimed(scene)
    await scene.until("sandboxes", all_ready(3))
    await scene.until(
        "sandboxwarmpools", lambda found: found[0].get("status", {}).get("readyReplicas") == 2
    )

    async def shown(kind: str, *wide: str) -> list[list[str]]:
        form = ("-o", "wide") if is_wide else ()
        return rows(await kubectl("get", *kind.split(), *form), *(wide if is_wide else ()))

    assert await shown(f"sandbox {taken}", "SINCE", "CLAIM", "POOL", "MODE", "IP", "NODE") == [
        ["NAME", "READY", "REASON"],
        [taken, "True", "DependenciesReady"],
    ]
    assert await shown("sandboxclaim", "POOL", "IP") == [
        ["NAME", "READY", "SANDBOX", "REASON"],
        ["c", "True", taken, "DependenciesReady"],
    ]
    assert await shown("swp", "MEMBERS", "TEMPLATE") == [
        ["NAME", "READY", "DESIRED"],
        ["p", "2", "2"],
    ]
    assert await shown("sandboxtemplate") == [["NAME"], ["t"]]


async def test_a_suspended_sandbox_shows_its_reason(kubectl: Run, scene: Scene) -> None:
    """The column Reason follows the condition; wait understands every condition."""
    await scene.create("sandboxes", sandbox())
    await kubectl("wait", "--for=condition=Ready", "sandbox/sb", PATIENTLY)
    change = '{"spec": {"operatingMode": "Suspended"}}'
    await kubectl("patch", "sandbox", "sb", "--type=merge", "-p", change)
    await kubectl("wait", "--for=condition=Suspended", "sandbox/sb", PATIENTLY)
    await kubectl("wait", "--for=condition=Ready=False", "sandbox/sb", PATIENTLY)
    assert rows(await kubectl("get", "sandbox"))[1] == ["sb", "False", "SandboxSuspended"]
    assert await kubectl("get", "pods", "-o", "name") == ""
    change = '{"spec": {"operatingMode": "Running"}}'
    await kubectl("patch", "sandbox", "sb", "--type=merge", "-p", change)
    await kubectl("wait", "--for=condition=Suspended=False", "sandbox/sb", PATIENTLY)
    await kubectl("wait", "--for=condition=Ready", "sandbox/sb", PATIENTLY)


async def test_wait_sees_a_claim_become_ready(kubectl: Run, scene: Scene) -> None:
    """A wait that begins before there is a claim ends when it is Ready, warm and cold."""
    await fill(scene, 1)
    for name in ("warm", "cold"):
        waiting = asyncio.create_task(
            kubectl("wait", "--for=create", f"sandboxclaim/{name}", PATIENTLY)
        )
        body = extension("SandboxClaim", name, warmPoolRef={"name": "p"})
        if name == "cold":
            # What asks for volumes of its own gets a Sandbox of its own; the template forbids it.
            body["spec"]["volumeClaimTemplates"] = [VOLUME]
            change = {"spec": {"volumeClaimTemplatesPolicy": "Allowed"}}
            await scene.patch("sandboxtemplates", "t", change)
        await scene.create("sandboxclaims", body)
        await waiting
        await kubectl("wait", "--for=condition=Ready", f"sandboxclaim/{name}", PATIENTLY)
    bound = "jsonpath={.status.sandbox.name}"
    assert await kubectl("get", "sandboxclaim", "cold", "-o", bound) == "cold"
    assert (await kubectl("get", "sandboxclaim", "warm", "-o", bound)).startswith("p-")


async def test_a_pool_is_scaled_and_a_sandbox_is_not(kubectl: Run, scene: Scene) -> None:
    """Members follow the scale, up and down to none; a Sandbox has no such subresource."""
    await fill(scene, 1)
    assert "scaled" in await kubectl("scale", "swp", "p", "--current-replicas=1", "--replicas=3")
    await scene.until("sandboxes", all_ready(3))
    selector = await kubectl("get", "swp", "p", "-o", "jsonpath={.status.selector}")
    for kind in ("pods", "sandboxes"):
        names = await kubectl("get", kind, "--selector", selector, "-o", "name")
        assert len(names.splitlines()) == 3
    await kubectl("wait", "--for=jsonpath={.status.readyReplicas}=3", "swp/p", PATIENTLY)
    await kubectl("scale", "swp", "p", "--replicas=0")
    await scene.until("sandboxes", lambda found: not found)
    await scene.until("pods", lambda found: not found)
    await scene.create("sandboxes", sandbox())
    with pytest.raises(RefusedError, match="NotFound"):
        await kubectl("scale", "sandbox", "sb", "--replicas=0")


async def test_describe_shows_the_events(kubectl: Run, scene: Scene) -> None:
    """What was done for a Sandbox and for a claim is told by whom."""
    await scene.create("sandboxes", sandbox())
    shown = await described(kubectl, "sandbox", "sb", "SandboxPodCreated", "SandboxReady")
    assert 'Created Pod "sb"' in shown
    assert "Sandbox is ready" in shown
    assert "sandbox-controller" in shown
    await kubectl("delete", "sandbox", "sb")
    await fill(scene, 1)
    taken = await claimed(scene)
    shown = await described(kubectl, "sandboxclaim", "c", "SandboxAdopted")
    assert f'Adopted warm pool Sandbox "{taken}"' in shown
    assert "sandboxclaim-controller" in shown
    assert "SandboxAdopted" in await kubectl("events", "--for=sandboxclaim/c")


async def test_describe_shows_why_a_pod_was_refused(kubectl: Run, scene: Scene) -> None:
    """A Pod that the server refuses: its words in a Warning and in the condition."""
    template = {"spec": {"containers": [{"name": "NOT A NAME", "image": "busybox"}]}}
    await scene.create("sandboxes", sandbox(podTemplate=template))
    shown = await described(kubectl, "sandbox", "sb", "SandboxPodCreateFailed")
    assert "Warning" in shown
    assert "spec.containers[0].name" in shown
    assert rows(await kubectl("get", "sandbox"))[1] == ["sb", "False", "InvalidConfiguration"]


async def test_explain_knows_every_kind(kubectl: Run, scene: Scene) -> None:
    """Group and version, types, what is required and which values there are."""
    for kind, group in (
        ("sandbox", "agents.x-k8s.io"),
        ("sandboxclaim", "extensions.agents.x-k8s.io"),
        ("sandboxtemplate", "extensions.agents.x-k8s.io"),
        ("sandboxwarmpool", "extensions.agents.x-k8s.io"),
    ):
        shown = await kubectl("explain", kind)
        assert f"GROUP:      {group}\n" in shown
        assert "VERSION:    v1beta1\n" in shown
        assert "-required-" in shown
    for field, values in (
        ("sandbox.spec.operatingMode", ["Running", "Suspended"]),
        ("sandboxclaim.spec.lifecycle.shutdownPolicy", ["Delete", "DeleteForeground", "Retain"]),
    ):
        shown = (await kubectl("explain", field)).partition("\nENUM:\n")[2]
        assert shown.partition("\n\n")[0].split() == values
    shown = await kubectl("explain", "sandboxtemplate.spec.podTemplate.spec.containers")
    assert "name\t<string> -required-" in shown
    assert "<[]string>" in await kubectl("explain", "sandbox.status.podIPs")


async def test_a_deleted_claim_leaves_nothing(kubectl: Run, scene: Scene) -> None:
    """Sandbox, Pod, Service and volume claim of a cold claim, Sandbox and Pod of a warm one."""
    await fill(scene, 1)
    change = {"spec": {"volumeClaimTemplatesPolicy": "Allowed", "service": True}}
    await scene.patch("sandboxtemplates", "t", change)
    await claimed(scene, "cold", volumeClaimTemplates=[VOLUME])
    found = await kubectl("get", "sandbox/cold", "pod/cold", "service/cold", "pvc/data-cold")
    assert "cold" in found
    await kubectl("delete", "sandboxclaim", "cold")
    await gone(scene, "cold", "data-cold")
    taken = await claimed(scene, "warm")
    # Foreground: kubectl returns when the Sandbox is gone, and that waits for its Pod.
    await kubectl("delete", "sandboxclaim", "warm", "--cascade=foreground")
    for kind in ("sandbox", "pod"):
        assert await kubectl("get", kind, taken, "--ignore-not-found") == ""
    await kubectl("delete", "swp/p", "sandboxtemplate/t")
    await gone(scene)


async def gone(scene: Scene, *names: str) -> None:
    """Wait until nothing of these names is there; without names, nothing at all."""

    def holds(found: list[Json]) -> bool:
        return not [one for one in found if not names or one["metadata"]["name"] in names]

    for plural in ("sandboxes", "pods", "services", "persistentvolumeclaims", "networkpolicies"):
        await scene.until(plural, holds)
