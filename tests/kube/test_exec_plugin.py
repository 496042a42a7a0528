"""Credential plugins: real little programs, run by the real code."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from lean_sandbox.kube import auth
from lean_sandbox.kube.auth import EnvironmentVariable, ExecAuth, ExecSettings
from lean_sandbox.kube.connection import Connection, insecure_context, tls_context
from lean_sandbox.kube.errors import CredentialFault
from lean_sandbox.kube.transport import Transport
from lean_sandbox.model.times import format_rfc3339
from tests.kube.certificates import Certificates
from tests.kube.server import in_turn, reply, serve
from tests.support.clock import FakeClock

V1 = "client.authentication.k8s.io/v1"

SOON = {"token": "t", "expirationTimestamp": "soon"}


class Plugin:
    """A program that prints what a file beside it holds, and writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "plugin"
        self.file.write_text(
            f"#!{sys.executable} -SE\n"
            "import os, sys\n"
            f"folder = {str(folder)!r}\n"
            "with open(folder + '/calls', 'a') as calls:\n"
            "    calls.write(os.environ['KUBERNETES_EXEC_INFO'] + '\\n')\n"
            "with open(folder + '/seen', 'w') as seen:\n"
            "    seen.write(repr((sys.argv[1:], os.environ.get('EXTRA'), sys.stdin.read())))\n"
            "print(open(folder + '/output').read())\n"
        )
        self.file.chmod(0o700)

    def will_print(self, version: str = V1, **status: Any) -> None:
        """Set the ExecCredential of the next runs."""
        credential = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        (self.folder / "output").write_text(json.dumps(credential))

    def will_print_certificate(self, certificates: Certificates, name: str) -> None:
        """Set a client certificate as the credential of the next runs."""
        self.will_print(
            clientCertificateData=(certificates.folder / f"{name}.crt").read_text(),
            clientKeyData=(certificates.folder / f"{name}.key").read_text(),
        )

    @property
    def calls(self) -> list[Any]:
        """What KUBERNETES_EXEC_INFO held in each run."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def settings(self, **fields: Any) -> ExecSettings:
        """Return settings that run this program."""
        defaults = ExecSettings(V1, str(self.file), folder=str(self.folder))
        return msgspec.structs.replace(defaults, **fields)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """Return a plugin that prints the token ``one``."""
    made = Plugin(tmp_path)
    made.will_print(token="one")
    return made


async def test_a_plugin_is_told_what_the_api_promises(plugin: Plugin) -> None:
    """Arguments, environment, KUBERNETES_EXEC_INFO with the cluster, and nothing to read."""
    cluster = {"server": "https://x", "config": {"a": 1}}
    settings = plugin.settings(
        args=("get", "token"), env=(EnvironmentVariable("EXTRA", "yes"),), cluster=cluster
    )
    credential = ExecAuth(settings, FakeClock(), has_terminal=False)
    assert await credential.authorization() == "Bearer one"
    assert plugin.calls == [
        {
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": cluster},
        }
    ]
    assert (plugin.folder / "seen").read_text() == "(['get', 'token'], 'yes', '')"


async def test_without_an_expiry_a_plugin_runs_once_until_refused(plugin: Plugin) -> None:
    """The credential is kept; a 401 runs the plugin again."""
    credential = ExecAuth(plugin.settings(), FakeClock())
    for _ in range(3):
        refused = await credential.authorization()
    assert len(plugin.calls) == 1
    assert not await credential.refresh(refused)
    plugin.will_print(token="two")
    assert await credential.refresh(refused)
    assert await credential.authorization() == "Bearer two"
    # Another request was refused with the same old token: it needs no third run.
    assert await credential.refresh(refused)
    assert len(plugin.calls) == 3


@pytest.mark.parametrize(
    "end", ["2026-01-02T03:14:05,5Z", "2026-01-02T3:14:05Z", "2026-01-03T03:14:05+24:00"]
)
async def test_an_expiry_is_read_as_client_go_reads_it(plugin: Plugin, end: str) -> None:
    """A comma, an hour of one digit, an offset of a day: whatever Go's time.Parse takes."""
    clock = FakeClock()
    plugin.will_print(token="one", expirationTimestamp=end)
    credential = ExecAuth(plugin.settings(), clock)
    await credential.authorization()
    plugin.will_print(token="two")
    await clock.advance(569)
    assert await credential.authorization() == "Bearer one"
    await clock.advance(2)
    assert await credential.authorization() == "Bearer two"


async def test_requests_at_the_same_time_share_one_run(plugin: Plugin) -> None:
    """Twenty requests at the start are one run of the plugin."""
    credential = ExecAuth(plugin.settings(), FakeClock())
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(credential.authorization)
    assert len(plugin.calls) == 1


async def test_a_run_ends_though_the_request_that_began_it_was_given_up(plugin: Plugin) -> None:
    """The next request finds its credential: a slow plugin holds up requests, not all of them."""
    credential = ExecAuth(plugin.settings(), FakeClock())
    output = plugin.folder / "output"
    text = output.read_bytes()
    output.unlink()
    os.mkfifo(output)
    async with anyio.create_task_group() as group:
        group.start_soon(credential.authorization)
        # Open once the plugin has opened it, too.
        pipe = await anyio.to_thread.run_sync(output.open, "wb")
        group.cancel_scope.cancel()
        with pipe, anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
            pipe.write(text)
    output.unlink()
    plugin.will_print(token="two")
    assert await credential.authorization() == "Bearer one"
    assert len(plugin.calls) == 1


def test_a_stuck_plugin_does_not_hold_up_the_end(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops the controller does not wait for it."""
    monkeypatch.setattr(auth, "_PLUGIN_TIMEOUT_S", 1e6)
    pid = plugin.folder / "pid"
    os.mkfifo(pid)
    plugin.file.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 1000000\n")

    async def ask_and_give_up() -> int:
        async with anyio.create_task_group() as group:
            group.start_soon(ExecAuth(plugin.settings(), FakeClock()).authorization)
            told = await anyio.to_thread.run_sync(pid.read_text)
            group.cancel_scope.cancel()
        return int(told)

    os.kill(anyio.run(ask_and_give_up), signal.SIGKILL)


async def test_requests_that_wait_for_one_run_share_its_fault(plugin: Plugin) -> None:
    """A plugin that fails slowly does so once for all of them."""
    plugin.file.write_text(f"#!/bin/sh\necho ran >> {plugin.folder}/calls\nexit 3\n")
    credential = ExecAuth(plugin.settings(), FakeClock())

    async def ask() -> None:
        with pytest.raises(CredentialFault, match="ended with 3"):
            await credential.authorization()

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
    assert (plugin.folder / "calls").read_text() == "ran\n"


@pytest.mark.parametrize("ends", ["2026-01-02T02:59:05Z", "0001-01-01T00:00:00Z"])
async def test_a_credential_that_ends_as_it_is_printed_is_used_for_a_while(
    plugin: Plugin, ends: str
) -> None:
    """As where two clocks differ by more than its life: not every request runs the plugin."""
    clock = FakeClock()
    credential = ExecAuth(plugin.settings(), clock)
    plugin.will_print(token="one", expirationTimestamp=ends)
    for _ in range(5):
        assert await credential.authorization() == "Bearer one"
    await clock.advance(9.9)
    assert await credential.authorization() == "Bearer one"
    assert len(plugin.calls) == 1
    await clock.advance(0.1)
    plugin.will_print(token="two", expirationTimestamp=ends)
    assert await credential.authorization() == "Bearer two"
    assert not await credential.refresh("Bearer two")
    assert len(plugin.calls) == 3


async def test_a_relative_command_begins_at_the_kubeconfig(plugin: Plugin) -> None:
    """``./plugin`` means the folder of the kubeconfig, not the working directory."""
    credential = ExecAuth(plugin.settings(command="./plugin"), FakeClock())
    assert await credential.authorization() == "Bearer one"


async def test_a_command_without_a_folder_is_looked_up_as_a_shell_does(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``plugin`` is a program of the PATH, also if the folder of the kubeconfig has one."""
    home = plugin.folder / "home"
    home.mkdir()
    (home / "plugin").write_text("#!/bin/false\n")
    (home / "plugin").chmod(0o700)
    monkeypatch.chdir(home)
    monkeypatch.setenv("PATH", f"{plugin.folder}{os.pathsep}{os.environ['PATH']}")
    credential = ExecAuth(plugin.settings(command="plugin", folder=str(home)), FakeClock())
    assert await credential.authorization() == "Bearer one"


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("", "did not print"),
        ("[]", "did not print"),
        (f'{{"apiVersion":"{V1}","kind":"ExecCredential"}}', "neither a token"),
        (f'{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"a\\nb"}}}}', "header"),
        (
            f'{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"clientKeyData":"k"}}}}',
            "without its key",
        ),
        (
            json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": SOON}),
            "expirationTimestamp",
        ),
    ],
)
async def test_a_plugin_that_prints_nonsense_is_a_credential_fault(
    plugin: Plugin, output: str, problem: str
) -> None:
    """Each mistake is named, with the plugin's name, and may be over the next time."""
    (plugin.folder / "output").write_text(output)
    with pytest.raises(CredentialFault, match=problem) as caught:
        await ExecAuth(plugin.settings(), FakeClock()).authorization()
    assert caught.value.retryable
    assert str(plugin.file) in str(caught.value)


async def test_a_plugin_that_fails_or_is_missing_says_why(plugin: Plugin) -> None:
    """Exit code with what it said, and the install hint where there is no program."""
    (plugin.folder / "output").unlink()
    # At a terminal a person has read it.
    with pytest.raises(CredentialFault, match=r"ended with 1: $"):
        await ExecAuth(plugin.settings(), FakeClock(), has_terminal=True).authorization()
    with pytest.raises(CredentialFault, match=r"ended with 1: (.|\n)*FileNotFoundError"):
        await ExecAuth(plugin.settings(), FakeClock()).authorization()
    missing = plugin.settings(command="./none", install_hint="run the installer")
    with pytest.raises(CredentialFault, match="run the installer"):
        await ExecAuth(missing, FakeClock()).authorization()


@pytest.mark.parametrize("field", ["args", "env"])
async def test_what_no_program_can_be_given_is_told(plugin: Plugin, field: str) -> None:
    """A zero byte in an argument, an equals sign in the name of a variable."""
    fields = {"args": ("a\0b",), "env": (EnvironmentVariable("A=B", "x"),)}
    given = plugin.settings(**{field: fields[field]})
    with pytest.raises(CredentialFault, match=r"cannot be run: (embedded|illegal)"):
        await ExecAuth(given, FakeClock()).authorization()


async def test_a_stuck_plugin_is_ended(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that never answers does not hold requests for ever."""
    plugin.file.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(auth, "_PLUGIN_TIMEOUT_S", 0.05)
    with pytest.raises(CredentialFault, match=r"did not answer within 0\.05 s"):
        await ExecAuth(plugin.settings(), FakeClock()).authorization()


async def test_a_printed_client_certificate_is_shown_and_replaced(
    plugin: Plugin, certificates: Certificates
) -> None:
    """The certificate goes into the TLS context; a new one means new connections."""
    plugin.will_print_certificate(certificates, "client")
    context = tls_context(file=certificates.authority)
    credential = ExecAuth(plugin.settings(), FakeClock(), context=context)
    script = in_turn(reply(), reply(401), reply(), reply())
    async with serve(script, tls=certificates.server_context(ask_client=True)) as server:
        transport = Transport(Connection(server.url, context, credential))
        await transport.request("GET", "/1")
        plugin.will_print_certificate(certificates, "client2")
        assert (await transport.request("GET", "/2")).status == 200
        await transport.request("GET", "/3")
        await transport.aclose()
    assert [request.connection for request in server.requests] == [1, 1, 2, 2]
    assert credential.identity == 2
    assert all("authorization" not in request.headers for request in server.requests)


async def test_a_printed_certificate_is_of_no_use_without_tls(plugin: Plugin) -> None:
    """A proxy on the way may speak plain HTTP: nothing is loaded, and nothing fails."""
    plugin.will_print(clientCertificateData="no", clientKeyData="no")
    assert await ExecAuth(plugin.settings(), FakeClock()).authorization() is None


async def test_a_printed_certificate_that_is_none_is_a_credential_fault(plugin: Plugin) -> None:
    """What OpenSSL refuses is told as the plugin's mistake."""
    plugin.will_print(clientCertificateData="no", clientKeyData="no")
    credential = ExecAuth(plugin.settings(), FakeClock(), context=insecure_context())
    with pytest.raises(CredentialFault, match="client certificate that fails"):
        await credential.authorization()


@pytest.mark.parametrize(("left_s", "runs"), [(31.0, 1), (30.0, 2), (29.0, 2)])
async def test_a_plugin_runs_again_half_a_minute_before_the_end(
    plugin: Plugin, left_s: float, runs: int
) -> None:
    """A request takes a while, and the clock of the server may be ahead."""
    clock = FakeClock()
    end = format_rfc3339(clock.now() + timedelta(seconds=100.0))
    plugin.will_print(token="one", expirationTimestamp=end)
    credential = ExecAuth(plugin.settings(), clock)
    await credential.authorization()
    await clock.advance(100.0 - left_s)
    await credential.authorization()
    assert len(plugin.calls) == runs


@pytest.mark.parametrize(
    ("mode", "has_terminal", "asks"),
    [
        ("Never", True, False),
        ("IfAvailable", True, True),
        ("IfAvailable", False, False),
        (None, True, True),
    ],
)
async def test_a_plugin_may_ask_a_person_where_there_is_one(
    plugin: Plugin, mode: Any, *, has_terminal: bool, asks: bool
) -> None:
    """Unless the kubeconfig says that it never has to."""
    settings = plugin.settings(interactive_mode=mode)
    await ExecAuth(settings, FakeClock(), has_terminal=has_terminal).authorization()
    assert plugin.calls[0]["spec"]["interactive"] is asks


async def test_refusals_of_one_certificate_share_a_run(
    plugin: Plugin, certificates: Certificates
) -> None:
    """Without a token only the certificate shows that another request has renewed it."""
    context = tls_context(file=certificates.authority)
    plugin.will_print_certificate(certificates, "client")
    credential = ExecAuth(plugin.settings(), FakeClock(), context=context)
    assert await credential.authorization() is None
    # The same once more is no new certificate.
    assert not await credential.refresh(None)
    assert (len(plugin.calls), credential.identity) == (2, 1)
    plugin.will_print_certificate(certificates, "client2")
    helped = []

    async def refresh() -> None:
        helped.append(await credential.refresh(None))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(refresh)
    assert (helped, len(plugin.calls), credential.identity) == ([True] * 3, 3, 2)


@pytest.mark.parametrize(
    ("version", "kind"), [(V1, "Pod"), (V1, ""), (f"{V1}beta1", "ExecCredential")]
)
async def test_what_is_printed_has_to_say_what_it_is(
    plugin: Plugin, version: str, kind: str
) -> None:
    """Kind and version, both."""
    printed = {"apiVersion": version, "kind": kind, "status": {"token": "t"}}
    (plugin.folder / "output").write_text(json.dumps(printed))
    with pytest.raises(CredentialFault, match=f"printed '{version}' '{kind}', not"):
        await ExecAuth(plugin.settings(), FakeClock()).authorization()
