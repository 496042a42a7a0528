"""Servers, environments and files that would have a client send its credential, or run theirs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from lean_sandbox.errors import ConfigError
from lean_sandbox.kube.auth import Auth, ExecAuth, ExecSettings
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ApiError
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.resources import PODS
from lean_sandbox.kube.transport import Transport
from tests.kube.server import in_turn, reply, serve
from tests.support.clock import FakeClock

ODD_ARGUMENTS = ["; touch seen", "$(touch seen)", "`touch seen`", "| touch seen", "\ntouch seen"]
LAUGHS = "a: &a [x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
FILES = {
    "a tag that calls": '!!python/object/apply:os.system ["touch seen"]',
    "a tag that makes": "!!python/object/new:subprocess.Popen [[touch, seen]]",
    "a tag that imports": "!!python/module:seen",
    "a tag inside": 'clusters: [!!python/object/apply:os.system ["touch seen"]]',
    "a billion laughs": LAUGHS,
}


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_redirect_is_followed(code: int, method: str) -> None:
    """It is an error, and the other server is asked nothing: it would be sent the credential."""
    async with serve(in_turn(reply())) as other:
        there = {"Location": f"{other.url}/api/v1/namespaces/ns/pods/p"}
        async with serve(in_turn(reply(code, b"", there))) as server:
            transport = Transport(
                Connection(server.url, auth=Auth("Bearer secret")), clock=FakeClock()
            )
            client = Client(transport)
            get = partial(client.get, PODS, "p", dict, namespace="ns")
            create = partial(client.create, PODS, {}, dict, namespace="ns")
            with pytest.raises(ApiError):
                await (get if method == "GET" else create)()
            await transport.aclose()
            assert len(server.requests) == 1
        assert other.opened == 0


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is asked itself, whatever the environment says of proxies."""
    async with serve(in_turn(reply())) as proxy, serve(in_turn(reply())) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv(name.lower(), proxy.url)
        transport = Transport(Connection(server.url), clock=FakeClock())
        await transport.request("GET", "/version")
        await transport.aclose()
        assert len(server.requests) == 1
        assert proxy.opened == 0


@pytest.mark.parametrize("argument", ODD_ARGUMENTS)
async def test_arguments_of_a_plugin_are_no_text_of_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str
) -> None:
    """The plugin gets each of them as it is written; nothing else is run."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "plugin"
    got = tmp_path / "got"
    seen = tmp_path / "seen"
    program.write_text(
        f"#!{sys.executable} -SE\nimport sys\nopen({str(got)!r}, 'w').write(repr(sys.argv[1:]))\n"
    )
    program.chmod(0o700)
    version = "client.authentication.k8s.io/v1"
    auth = ExecAuth(
        ExecSettings(version, str(program), args=(argument, "x"), folder=str(tmp_path)), FakeClock()
    )
    with pytest.raises(Exception, match="plugin"):
        await auth.authorization()
    assert not seen.exists()
    assert got.read_text() == repr([argument, "x"])


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_kubeconfig_runs_and_fills_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """Tags of Python and aliases without end are a mistake in the file, and a module is no tag."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seen.py").write_text("open('imported', 'w')")
    (tmp_path / "yaml.py").write_text("open('imported', 'w')")
    file = tmp_path / "config"
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load(str(file))
    assert str(file) in str(caught.value)
    assert not (tmp_path / "seen").exists()
    assert not (tmp_path / "imported").exists()
