"""From kubeconfigs and service accounts to connections: which file counts, what each field does."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from lean_sandbox.errors import ConfigError
from lean_sandbox.kube.auth import EnvironmentVariable, ExecAuth, TokenFileAuth
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ConnectFailed
from lean_sandbox.kube.kubeconfig import own_namespace
from lean_sandbox.kube.transport import Transport
from tests.kube.certificates import Certificates, make
from tests.kube.homes import EXEC, V1, Home
from tests.kube.server import in_turn, reply, serve


async def header(connection: Connection) -> str | None:
    """Return what the connection sends as credential."""
    return await connection.auth.authorization()


def test_the_flag_wins_over_environment_cluster_and_home(
    home: Home, certificates: Certificates
) -> None:
    """Flag, KUBECONFIG, service account, home: each stands in only for those before it."""
    flag = home.write("flag")
    listed = home.write("listed")
    home.write()
    home.mount(certificates)
    home.environ["KUBECONFIG"] = str(listed)
    assert home.load(flag).server == "http://flag"
    assert home.load().server == "http://listed"
    del home.environ["KUBECONFIG"]
    assert home.load().server == "https://10.0.0.1:443"
    # A context by name cannot mean the service account, which has none.
    assert home.load(context="main").server == "http://config"
    home.environ = {"HOME": str(home.folder)}
    assert home.load().server == "http://config"


def test_kubeconfig_may_list_files_and_the_first_match_is_used(home: Home) -> None:
    """Missing files are passed over; the first with the wanted or a current context is taken."""
    first = home.write("first", **{"current-context": ""})
    second = home.write("second")
    third = home.write(
        "third", contexts=[{"name": "other", "context": {"cluster": "c", "user": "u"}}]
    )
    home.environ["KUBECONFIG"] = f"{home.folder}/none:{first}:{second}:{third}"
    assert home.load().server == "http://second"
    assert home.load(context="main").server == "http://first"
    assert home.load(context="other").server == "http://third"


def test_a_kubeconfig_may_be_a_pipe(home: Home) -> None:
    """As of `--kubeconfig <(kubectl config view --raw)`; it can be read once only."""
    reading, writing = os.pipe()
    os.write(writing, home.write("shown").read_bytes())
    os.close(writing)
    try:
        assert home.load(Path(f"/dev/fd/{reading}")).server == "http://shown"
    finally:
        os.close(reading)


def test_the_current_context_is_that_of_the_first_file_that_names_one(home: Home) -> None:
    """As kubectl has it, which writes the choice into the first file; contexts are anywhere."""
    first = home.write("first", current="wanted", contexts=[])
    context = {"cluster": "c", "user": "u"}
    second = home.write("second", contexts=[{"name": "wanted", "context": context}])
    home.environ["KUBECONFIG"] = f"{first}:{home.write('other')}:{second}"
    assert home.load().server == "http://second"
    home.environ["KUBECONFIG"] = str(first)
    with pytest.raises(ConfigError, match="current-context: there is no context 'wanted'"):
        home.load()
    home.write("first", current="")
    with pytest.raises(ConfigError, match="current-context: is not set"):
        home.load()


async def test_what_changes_in_a_kubeconfig_counts_from_the_next_start(
    home: Home, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The authority, whose file is replaced, and the token."""
    rotated = make(tmp_path_factory.mktemp("rotated"))
    authority = home.folder / "ca.crt"
    authority.write_bytes(certificates.authority.read_bytes())
    async with serve(in_turn(reply(401), reply()), tls=rotated.server_context()) as server:
        cluster = {"server": server.url, "certificate-authority": str(authority)}
        home.write(cluster=cluster, user={"token": "old"})
        transport = Transport(home.load())
        for _ in range(3):
            with pytest.raises(ConnectFailed, match="was refused"):
                await transport.request("GET", "/")
            authority.write_bytes(rotated.authority.read_bytes())
        await transport.aclose()
        transport = Transport(home.load())
        home.write(cluster=cluster, user={"token": "new"})
        assert (await transport.request("GET", "/")).status == 401
        await transport.aclose()
        transport = Transport(home.load())
        assert (await transport.request("GET", "/")).status == 200
        await transport.aclose()
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer old", "Bearer new"]


def test_a_client_certificate_needs_a_folder_for_temporary_files(
    home: Home, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python reads it from files only. Nothing is left there; without one the way out is told."""
    certificate, key = map(str, certificates.client)
    user = {"client-certificate": certificate, "client-key": key}
    home.write(cluster={"server": "https://x"}, user=user)
    folder = home.folder / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    home.load()
    assert list(folder.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/nowhere"])
    with pytest.raises(ConfigError, match=r"No usable temporary directory .* in TMPDIR"):
        home.load()


async def test_each_kind_of_user_becomes_its_credential(home: Home) -> None:
    """Token file before token; none at all is allowed."""
    (home.folder / ".kube").mkdir()
    (home.folder / ".kube" / "tok").write_text("from-file")
    near = {"server": "http://127.0.0.1:8001"}
    home.write(user={"token": "t", "tokenFile": "tok"}, cluster=near)
    assert await header(home.load()) == "Bearer from-file"
    home.write(user={"token": "t"}, cluster=near)
    assert await header(home.load()) == "Bearer t"
    home.write()
    assert await header(home.load()) is None
    home.write(context={"user": ""})
    assert await header(home.load()) is None


@pytest.mark.parametrize("inline", [True, False])
async def test_certificates_by_file_and_inline_reach_a_server(
    home: Home, certificates: Certificates, *, inline: bool
) -> None:
    """CA and client certificate work as data and as paths relative to the kubeconfig."""
    files = {
        "certificate-authority": certificates.authority,
        "client-certificate": certificates.client[0],
        "client-key": certificates.client[1],
    }
    fields = {}
    (home.folder / "pki").mkdir()
    for key, file in files.items():
        if inline:
            # Wrapped as people do it.
            fields[f"{key}-data"] = base64.encodebytes(file.read_bytes()).decode()
        else:
            (home.folder / "pki" / file.name).write_bytes(file.read_bytes())
            fields[key] = f"pki/{file.name}"
    authority = {key: value for key, value in fields.items() if "authority" in key}
    user = {key: value for key, value in fields.items() if "client" in key}
    script = in_turn(reply())
    async with serve(script, tls=certificates.server_context(ask_client=True)) as server:
        more = {"server": server.url, "tls-server-name": "api.test"}
        transport = Transport(home.load(home.write("conf", cluster=authority | more, user=user)))
        assert (await transport.request("GET", "/")).status == 200
        await transport.aclose()


@pytest.mark.parametrize("inline", [True, False])
def test_an_authority_may_have_comments_in_any_language(
    home: Home, certificates: Certificates, *, inline: bool
) -> None:
    """Only what stands between the lines of PEM counts, inline as in a file."""
    pem = "# Főtanúsítvány\n".encode() + certificates.authority.read_bytes()
    file = home.folder / "ca.crt"
    file.write_bytes(pem)
    inlined = {"certificate-authority-data": base64.b64encode(pem).decode()}
    named = inlined if inline else {"certificate-authority": str(file)}
    home.write(cluster={"server": "https://x", **named})
    context = home.load().ssl_context
    assert context is not None
    assert len(context.get_ca_certs()) == 1


def test_a_date_in_the_file_is_no_obstacle(home: Home) -> None:
    """YAML makes dates of some texts; a plugin is told them as texts."""
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"at": "then"}}
    cluster = {"server": "https://h", "extensions": [extension]}
    file = home.write(cluster=cluster, user={"exec": EXEC | {"provideClusterInfo": True}})
    file.write_text(file.read_text().replace("at: then", "at: 2026-01-02"))
    auth = home.load().auth
    assert isinstance(auth, ExecAuth)
    assert b'"at":"2026-01-02"' in msgspec.json.encode(auth._settings.cluster)


async def test_insecure_skips_verification(home: Home, certificates: Certificates) -> None:
    """Neither the authority nor the name is asked for."""
    async with serve(in_turn(reply()), tls=certificates.server_context()) as server:
        insecure = {"insecure-skip-tls-verify": True, "tls-server-name": "x.test"}
        transport = Transport(home.load(home.write(cluster={"server": server.url, **insecure})))
        assert (await transport.request("GET", "/")).status == 200
        await transport.aclose()


async def test_an_exec_user_becomes_a_plugin(home: Home, certificates: Certificates) -> None:
    """All fields arrive, the cluster with its CA inlined and its extension as config."""
    (home.folder / ".kube").mkdir()
    (home.folder / ".kube" / "ca.crt").write_bytes(certificates.authority.read_bytes())
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    home.write(
        cluster={
            "server": "https://h",
            "certificate-authority": "ca.crt",
            "extensions": [extension, {"name": "other", "extension": 1}],
        },
        user={
            "exec": {
                "apiVersion": V1,
                "command": "tool",
                "args": ["a"],
                "env": [{"name": "N", "value": "V"}],
                "interactiveMode": "Never",
                "provideClusterInfo": True,
                "installHint": "get it",
            }
        },
    )
    auth = home.load().auth
    assert isinstance(auth, ExecAuth)
    settings = auth._settings
    assert (settings.command, settings.args) == ("tool", ("a",))
    assert settings.env == (EnvironmentVariable("N", "V"),)
    assert (settings.interactive_mode, settings.install_hint) == ("Never", "get it")
    assert settings.folder == str(home.folder / ".kube")
    pem = base64.b64encode(certificates.authority.read_bytes()).decode()
    assert settings.cluster == {
        "server": "https://h",
        "certificate-authority-data": pem,
        "config": {"audience": "x"},
    }


def test_the_namespace_of_a_pod_is_told_by_its_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a cluster there is none."""
    monkeypatch.setattr("lean_sandbox.kube.kubeconfig.SERVICE_ACCOUNT", tmp_path)
    assert own_namespace() == ""
    (tmp_path / "namespace").write_text("here\n")
    assert own_namespace() == "here"


@pytest.mark.parametrize(
    ("host", "port", "server"),
    [
        ("10.0.0.1", "8443", "https://10.0.0.1:8443"),
        ("10.0.0.1", None, "https://10.0.0.1:443"),
        ("fd00::1", "443", "https://[fd00::1]:443"),
    ],
)
async def test_a_pod_finds_the_server_by_its_environment(
    home: Home, certificates: Certificates, host: str, port: str | None, server: str
) -> None:
    """Any family of addresses; 443 where no port is named; its token; and not without that."""
    home.mount(certificates)
    home.environ["KUBERNETES_SERVICE_HOST"] = host
    del home.environ["KUBERNETES_SERVICE_PORT"]
    if port is not None:
        home.environ["KUBERNETES_SERVICE_PORT"] = port
    found = home.load()
    assert (found.server, found.in_cluster) == (server, True)
    assert isinstance(found.auth, TokenFileAuth)
    assert await header(found) == "Bearer secret"
    (home.account / "token").unlink()
    home.write()
    assert home.load().server == "http://config"


def test_what_is_passed_to_a_plugin_of_the_cluster_is_what_is_set(
    home: Home, certificates: Certificates
) -> None:
    """And nothing else: without anything, the server alone; extensions of others are left out."""
    user = {"exec": {**EXEC, "provideClusterInfo": True}}
    server = {"server": "https://h"}
    for cluster in (server, {**server, "extensions": None}, {**server, "extensions": [1, "x"]}):
        home.write(cluster=cluster, user=user)
        auth = home.load().auth
        assert isinstance(auth, ExecAuth)
        assert auth._settings.cluster == server
    inline = base64.b64encode(certificates.authority.read_bytes()).decode()
    for named in (
        {**server, "tls-server-name": "n", "insecure-skip-tls-verify": True},
        {**server, "certificate-authority-data": inline},
    ):
        # A file besides the data is not read.
        files = {"certificate-authority": "nowhere"} if inline in named.values() else {}
        home.write(cluster=named | files, user=user)
        auth = home.load().auth
        assert isinstance(auth, ExecAuth)
        assert auth._settings.cluster == named


@pytest.mark.parametrize(
    ("mode", "has_terminal", "is_refused"),
    [("Always", True, False), ("Always", False, True), ("IfAvailable", False, False)],
)
def test_a_plugin_that_must_ask_needs_a_terminal(
    home: Home, monkeypatch: pytest.MonkeyPatch, mode: str, *, has_terminal: bool, is_refused: bool
) -> None:
    """A process may even have no input at all."""
    user = {"exec": {**EXEC, "interactiveMode": mode}}
    home.write(cluster={"server": "https://h"}, user=user)
    stdin = SimpleNamespace(isatty=lambda: True) if has_terminal else None
    monkeypatch.setattr(sys, "stdin", stdin)
    if is_refused:
        with pytest.raises(ConfigError, match=r"exec\.interactiveMode: "):
            home.load()
    else:
        assert isinstance(home.load().auth, ExecAuth)
