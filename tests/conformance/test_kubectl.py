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

from tests.conformance.api import widget
from tests.conformance.servers import Server

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


async def test_everyday_changes(kubectl: Run) -> None:
    """label, annotate, scale, edit, patch, explain, describe, events, delete, wait."""
    await kubectl("create", "-f", "-", given=json.dumps(widget("daily", replicas=1)))
    assert "labeled" in await kubectl("label", "widget", "daily", "k=v")
    assert "annotated" in await kubectl("annotate", "widget", "daily", "k=v")
    assert "scaled" in await kubectl("scale", "widget", "daily", "--replicas=4")
    edit = "sed -i s/size:.*/size:\\ 9/"
    assert "edited" in await kubectl("edit", "widget", "daily", editor=edit)
    change = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    await kubectl("patch", "widget", "daily", "--subresource=status", "--type=merge", "-p", change)
    await kubectl("wait", "--for=condition=Ready", "widget/daily", "--timeout=5s")
    described = await kubectl("describe", "widget", "daily")
    assert "Size:" in described
    assert "-required-" in await kubectl("explain", "widget.spec")
    assert "deleted" in await kubectl("delete", "widget", "daily")
    await kubectl("wait", "--for=delete", "widget/daily", "--timeout=5s")


async def test_who_am_i_and_what_may_i_do(kubectl: Run) -> None:
    """Auth whoami, auth can-i, create token."""
    assert "admin" in await kubectl("auth", "whoami")
    assert (await kubectl("auth", "can-i", "create", "pods")).strip() == "yes"
    assert (await kubectl("create", "token", "default")).count(".") == 2


async def test_namespaces_and_small_kinds(kubectl: Run) -> None:
    """Typed clients send some bodies as protobuf."""
    await kubectl("create", "namespace", "team")
    await kubectl("create", "configmap", "c", "--from-literal=k=v", "-n", "team")
    await kubectl("create", "role", "r", "--verb=get", "--resource=pods", "-n", "team")
    assert "configmap/c" in await kubectl("get", "configmaps", "-n", "team", "-o", "name")
    assert "deleted" in await kubectl("delete", "namespace", "team")


async def test_resources_are_listed(kubectl: Run) -> None:
    """api-resources knows short names and custom kinds."""
    out = await kubectl("api-resources")
    assert "widgets" in out
    assert "po " in out
    assert "kubernetes" in await kubectl("get", "all", "-A")
