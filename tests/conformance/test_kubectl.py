"""kubectl cannot tell one server from the other, as far as these commands go."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.objects import widget
from tests.conformance.servers import Server
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

# It sends its token over TLS only.
TLS = True
Run = Callable[..., Awaitable[str]]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def kubectl(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Give a function that runs kubectl against a server with TLS and RBAC."""
    if shutil.which("kubectl") is None:
        assert not server.is_real, "kubectl is not installed"
        pytest.skip("kubectl is not installed")
    home = tmp_path_factory.mktemp("kubectl")
    config = server.kubeconfig(home / "config")

    async def run(*arguments: str, given: str = "", editor: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            f"--kubeconfig={config}",
            f"--cache-dir={home / 'cache'}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "EDITOR": editor},
        )
        out, error = await process.communicate(given.encode())
        assert process.returncode == 0, error.decode()
        return out.decode()

    return run


def manifest(tmp_path: Path, size: int) -> str:
    """Write a Widget and return the file."""
    path = tmp_path / "widget.json"
    path.write_text(json.dumps(widget("applied", size=size)))
    return str(path)


async def test_apply_on_the_client_side(kubectl: Run, tmp_path: Path) -> None:
    """created, unchanged, configured: validated against the OpenAPI document."""
    assert "created" in await kubectl("apply", "-f", manifest(tmp_path, 1))
    assert "unchanged" in await kubectl("apply", "-f", manifest(tmp_path, 1))
    assert "configured" in await kubectl("apply", "-f", manifest(tmp_path, 2))
    size = await kubectl("get", "widget", "applied", "-o", "jsonpath={.spec.size}")
    assert size == "2"


async def test_a_list_is_checked_item_by_item(kubectl: Run) -> None:
    """Each item of a List is created; one with a field that its kind lacks is refused."""

    def listed(*items: Json) -> str:
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})

    out = await kubectl("create", "-f", "-", given=listed(widget("one"), widget("two")))
    assert [line.split()[-1] for line in out.splitlines()] == ["created", "created"]
    odd = widget("odd")
    odd["spec"]["colour"] = "red"
    with pytest.raises(AssertionError, match="unknown field"):
        await kubectl("create", "-f", "-", given=listed(widget("three"), odd))


async def test_apply_on_the_server_side(kubectl: Run, tmp_path: Path) -> None:
    """serverside-applied, and the fields taken over from the client-side manager."""
    path = manifest(tmp_path, 3)
    out = await kubectl("apply", "--server-side", "--force-conflicts", "-f", path)
    assert "serverside-applied" in out


async def test_get_prints_the_columns_of_the_definition(kubectl: Run) -> None:
    """Tables come from the server."""
    given = json.dumps(widget("shown", replicas=3))
    await kubectl("create", "-f", "-", given=given)
    lines = (await kubectl("get", "widgets", "shown")).splitlines()
    assert lines[0].split() == ["NAME", "READY", "REPLICAS", "AGE"]
    assert lines[1].split()[:2] == ["shown", "3"]


async def test_an_object_can_be_changed_described_and_deleted(kubectl: Run) -> None:
    """label, annotate, scale, edit, patch, explain, describe, events, delete, wait."""
    await kubectl("create", "-f", "-", given=json.dumps(widget("daily", replicas=1)))
    assert "labeled" in await kubectl("label", "widget", "daily", "k=v")
    assert "annotated" in await kubectl("annotate", "widget", "daily", "k=v")
    assert "scaled" in await kubectl("scale", "widget", "daily", "--replicas=4")
    edit = "sed -i s/size:.*/size:\\ 9/"
    assert "edited" in await kubectl("edit", "widget", "daily", editor=edit)
    change = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    await kubectl("patch", "widget", "daily", "--subresource=status", "--type=merge", "-p", change)
    await kubectl("wait", "--for=condition=Ready", "widget/daily", f"--timeout={PATIENCE_S}s")
    described = await kubectl("describe", "widget", "daily")
    assert "Size:" in described
    assert "-required-" in await kubectl("explain", "widget.spec")
    assert "deleted" in await kubectl("delete", "widget", "daily")
    await kubectl("wait", "--for=delete", "widget/daily", f"--timeout={PATIENCE_S}s")


async def test_who_am_i_and_what_may_i_do(kubectl: Run) -> None:
    """Auth whoami, auth can-i, create token."""
    assert "admin" in await kubectl("auth", "whoami")
    assert (await kubectl("auth", "can-i", "create", "pods")).strip() == "yes"
    assert (await kubectl("create", "token", "default")).count(".") == 2


async def test_a_namespace_is_made_used_and_deleted(kubectl: Run) -> None:
    """Typed clients send some bodies as protobuf."""
    await kubectl("create", "namespace", "team")
    await kubectl("create", "configmap", "c", "--from-literal=k=v", "-n", "team")
    await kubectl("create", "role", "r", "--verb=get", "--resource=pods", "-n", "team")
    assert "configmap/c" in await kubectl("get", "configmaps", "-n", "team", "-o", "name")
    assert "deleted" in await kubectl("delete", "namespace", "team")


_CREATED = (
    "clusterrolebinding c --clusterrole=view --user=somebody",
    "deployment c --image=busybox --replicas=0",
    "poddisruptionbudget c --selector=a=b --min-available=1",
    "priorityclass c --value=7",
    "secret generic c --from-literal=a=b",
    "service clusterip c --tcp=80:80",
)


async def test_create_makes_what_it_is_told_to(kubectl: Run) -> None:
    """`kubectl create` sends every kind as protobuf."""
    kinds = [words.split()[0] for words in _CREATED]
    for words in _CREATED:
        await kubectl("create", *words.split())
    for verb in ("get", "describe", "delete"):
        said = await kubectl(verb, *(f"{kind}/c" for kind in kinds))
        assert said.count("deleted" if verb == "delete" else "\n\n") >= len(kinds) - 1


async def test_a_deployment_is_changed_by_command(kubectl: Run) -> None:
    """Scale, set image, label, rollout: commands that read, change and write."""
    await kubectl("create", "deployment", "changed", "--image=busybox", "--replicas=0")
    await kubectl("scale", "deployment", "changed", "--replicas=2")
    await kubectl("set", "image", "deployment/changed", "busybox=other")
    await kubectl("set", "env", "deployment/changed", "A=b")
    await kubectl("rollout", "restart", "deployment/changed")
    found = json.loads(await kubectl("get", "deployment", "changed", "-o", "json"))
    assert found["spec"]["replicas"] == 2
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "other"
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert (
        "kubectl.kubernetes.io/restartedAt" in found["spec"]["template"]["metadata"]["annotations"]
    )
    await kubectl("delete", "deployment", "changed")


async def test_explain_describes_fields(kubectl: Run) -> None:
    """Of built-in kinds in the words of the server, of custom ones by their schema."""
    assert "restart policy" in (await kubectl("explain", "pod.spec.restartPolicy")).lower()
    assert "FIELDS" in await kubectl("explain", "poddisruptionbudgets.spec")
    assert "replicas" in await kubectl("explain", "widgets.spec")


async def test_resources_are_listed(kubectl: Run) -> None:
    """api-resources knows short names and custom kinds."""
    out = await kubectl("api-resources")
    assert "widgets" in out
    assert "po " in out
    assert "kubernetes" in await kubectl("get", "all", "-A")
