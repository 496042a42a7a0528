"""Credentials of kubeconfigs are found in requests and nowhere else.

Each is used, refused and broken in all the ways that a kubeconfig, a plugin or a server breaks it.
What is then said is searched: errors, the log at debug, metrics, and what records of requests hold.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from lean_sandbox import log
from lean_sandbox.cli import main
from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_OK
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.resources import PODS
from lean_sandbox.kube.telemetry import RequestRecord
from lean_sandbox.manager.manager import build_client
from lean_sandbox.metrics.registry import Exposition
from tests.kube.certificates import Certificates
from tests.kube.server import Answer, reply, serve
from tests.support.clock import FakeClock

Json = dict[str, Any]
SECRET = "pl4nted-s3cret"
ENCODED = base64.b64encode(SECRET.encode()).decode()
V1 = "client.authentication.k8s.io/v1"
PEM = f"-----BEGIN PRIVATE KEY-----\n{ENCODED}\n-----END PRIVATE KEY-----\n"


def plugin(**more: Any) -> Json:
    """Return an exec section whose program gets secrets, and what it should do, as arguments."""
    command = {"apiVersion": V1, "interactiveMode": "Never", "command": "./plugin"}
    return {"exec": {**command, "env": [{"name": "KEY", "value": SECRET}], **more}}


def prints(text: str, *, code: int = 0) -> Json:
    """Return an exec section whose program prints a text and ends."""
    return plugin(args=[f"--key={SECRET}", text, str(code)])


def credential(**status: Any) -> str:
    """Return what a plugin prints."""
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})


REFUSED: dict[str, Json] = {
    "a token with a line break": {"user": {"token": f"{SECRET}\nx"}},
    "a token that is a list": {"user": {"token": [SECRET]}},
    "a token that is a mapping": {"user": {"token": {SECRET: SECRET}}},
    "a user that is a text": {"user": SECRET},
    "a password": {"user": {"username": "u", "password": SECRET}},
    "a token for anybody to read": {"user": {"token": SECRET}, "server": "http://10.0.0.1"},
    "a password in the URL": {"server": f"https://me:{SECRET}@host:6443"},
    "a password with a slash": {"server": f"https://me:{SECRET}/x@host:6443"},
    "a password with a line break": {"server": f"https://me:x\n{SECRET}@host:6443"},
    "a password with a number sign": {"server": f"https://me:{SECRET}#x@host:6443"},
    "a password before no scheme": {"server": f"me:{SECRET}@host:6443"},
    "a password behind one slash": {"server": f"https:/me:{SECRET}@host:6443"},
    "a token in the query": {"server": f"https://host:6443/?token={SECRET}"},
    "a token in the fragment": {"server": f"https://host:6443/#{SECRET}"},
    "a proxy": {"cluster": {"proxy-url": f"http://me:{SECRET}@proxy:3128"}},
    "an auth provider": {"user": {"auth-provider": {"config": {"access-token": SECRET}}}},
    "impersonation": {"user": {"as": "x", "token": SECRET}},
    "a key that is no base64": {
        "user": {"client-certificate-data": ENCODED, "client-key-data": f"!{SECRET}"}
    },
    "a key that is none": {
        "user": {
            "client-certificate-data": ENCODED,
            "client-key-data": base64.b64encode(PEM.encode()).decode(),
        }
    },
    "a key without a certificate": {
        "user": {"client-key-data": SECRET, "client-certificate": "nowhere"}
    },
    "a plugin that needs a person": {"user": plugin(interactiveMode="Always", args=[SECRET])},
    "a plugin of another version": {"user": plugin(apiVersion="v0", args=[SECRET])},
    "a plugin whose environment is a mapping": {"user": plugin(env={"KEY": SECRET})},
    "a plugin whose arguments are a text": {"user": plugin(args=f"--key={SECRET}")},
}

# What YAML takes for an alias, a tag, an anchor, an indicator: passwords begin with anything.
ODD_TEXTS = [
    "*{}",
    "!{}",
    "!{}!x",
    "&{} &{}",
    "&{}\n    x: &{} y",
    "%{}",
    "@{}",
    "`{}",
    "'{}",
    '"{}',
    '"\\x{}"',
    "{{{}",
    "[{}",
    "|{}",
    "? {}",
    "{}: {}: x",
    "- {}",
    "\t{}",
    "{}\n  {}",
]

USED: dict[str, Json] = {
    "a token": {"token": SECRET},
    "a token file": {"tokenFile": "token"},
    "a plugin": prints(credential(token=SECRET)),
}

BROKEN: dict[str, Json] = {
    "prints half": prints(credential(token=SECRET)[:-9]),
    "prints text": prints(SECRET),
    "prints a token with a line break": prints(credential(token=f"{SECRET}\n")),
    "prints a token as a list": prints(credential(token=[SECRET])),
    "prints another status": prints(
        json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": SECRET})
    ),
    "prints no version": prints(json.dumps({"token": SECRET})),
    "prints a strange time": prints(credential(token=SECRET, expirationTimestamp="soon")),
    "prints a certificate alone": prints(credential(clientCertificateData=SECRET)),
    "prints a key that is none": prints(credential(clientCertificateData=PEM, clientKeyData=PEM)),
    "fails after printing": prints(credential(token=SECRET), code=3),
    "is not there": plugin(command="./nowhere", args=[SECRET]),
}

STATUS = {"kind": "Status", "reason": "Forbidden", "message": "no"}
ANSWERS: dict[str, Answer] = {
    "accepts": reply(200, {"metadata": {"name": "p", "resourceVersion": "1"}}),
    "refuses the credential": reply(401, {**STATUS, "reason": "Unauthorized"}),
    "refuses the request": reply(403, STATUS),
    "fails": reply(500, b"<html>Internal Server Error</html>"),
    "redirects": reply(302, b"", {"Location": "http://127.0.0.1:1/"}),
    "closes": Answer((), close=True),
    "talks nonsense": Answer([b"\x15\x03\x01\x00\x02\x02\x28\r\n\r\n"], close=True),
    "sends no JSON": reply(200, b"{]"),
}


@pytest.fixture
def logged(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    """Log everything, as JSON lines, into what is returned."""
    log.configure("debug", "json")
    yield capsys
    structlog.reset_defaults()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a token file and a plugin, which prints its next to last argument."""
    (tmp_path / "token").write_text(SECRET)
    program = tmp_path / "plugin"
    program.write_text(
        f"#!{sys.executable} -SE\nimport sys\nprint(sys.argv[-2])\nsys.exit(int(sys.argv[-1]))\n"
    )
    program.chmod(0o700)
    return tmp_path


def written(folder: Path, server: str, user: Any = None, cluster: Json | None = None) -> Path:
    """Write a kubeconfig."""
    document = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": {} if user is None else user}],
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(document))
    return file


def assert_not_told(*said: str) -> None:
    """Fail where a text has a secret, as it is or as base64."""
    header = base64.b64encode(f"me:{SECRET}".encode()).decode()
    for text in said:
        for secret in (SECRET, ENCODED, header):
            at = text.find(secret)
            assert at < 0, text[max(0, at - 200) :][:300]


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_kubeconfig_is_refused_for_is_not_quoted(
    what: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the field; ``config``, which does not read it, shows its path alone."""
    found = {"server": "https://host:6443", **REFUSED[what]}
    file = written(folder, found["server"], found.get("user"), found.get("cluster"))
    assert main(["run", f"--kubeconfig={file}", "--log-level=debug"]) == EXIT_CONFIG
    said = capsys.readouterr()
    assert str(file) in said.err
    assert main(["config", f"--kubeconfig={file}"]) == EXIT_OK
    shown = capsys.readouterr()
    assert str(file) in shown.out
    assert_not_told(said.out, said.err, shown.out, shown.err)


@pytest.mark.parametrize("odd", ODD_TEXTS)
def test_what_is_no_yaml_is_not_quoted(
    odd: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A password that YAML takes for something else: where it stands and what is wrong."""
    file = written(folder, "http://10.0.0.1", {"password": "PLACE"})
    file.write_text(file.read_text().replace("PLACE", odd.replace("{}", SECRET)))
    assert main(["run", f"--kubeconfig={file}"]) == EXIT_CONFIG
    said = capsys.readouterr().err
    assert str(file) in said
    assert_not_told(said)


async def asked(kubeconfig: Path) -> str:
    """Make a request by a kubeconfig; return all that can be seen of it but the request."""
    records: list[RequestRecord] = []
    clock = FakeClock()
    connection = load(str(kubeconfig), clock=clock)
    client = build_client(Settings(enable_rest_client_metrics=True), clock, connection)
    client.transport.observer = records.append
    said = [repr(connection), repr(client), repr(client.transport), repr(connection.auth)]
    try:
        said.append(repr(await client.get(PODS, "p", dict, namespace="ns")))
    except ControlPlaneError as error:
        said += [str(error), repr(error), *map(str, error.args)]
        structlog.get_logger("test").exception("failed")
    found = Exposition()
    client.transport.counted.collect(found)
    await client.transport.aclose()
    return "\n".join([*said, repr(records), repr(found.families)])


@pytest.mark.parametrize("how", ANSWERS)
@pytest.mark.parametrize("what", USED)
async def test_a_credential_is_sent_and_not_told(
    what: str, how: str, folder: Path, logged: pytest.CaptureFixture[str]
) -> None:
    """Whatever the server answers: it was in the header, and it is in nothing that is said."""
    async with serve(lambda _request: ANSWERS[how]) as server:
        said = await asked(written(folder, server.url, USED[what]))
        headers = [one.headers["authorization"] for one in server.requests]
    wanted = base64.b64encode(f"me:{SECRET}".encode()).decode() if what == "a password" else SECRET
    assert headers
    assert all(header.endswith(wanted) for header in headers)
    log_lines = logged.readouterr().err
    assert "connecting" in log_lines
    assert_not_told(said, log_lines)


@pytest.mark.parametrize("what", BROKEN)
async def test_what_a_broken_plugin_prints_is_not_told(
    what: str, folder: Path, certificates: Certificates, logged: pytest.CaptureFixture[str]
) -> None:
    """Neither its output, nor its arguments, nor its environment; no request is made."""
    cluster = {"certificate-authority": str(certificates.authority)}
    async with serve(lambda _request: reply(), tls=certificates.server_context()) as server:
        said = await asked(written(folder, server.url, BROKEN[what], cluster))
        assert not server.requests
    assert "credential plugin './" in said
    assert_not_told(said, logged.readouterr().err)


async def test_a_client_key_is_used_and_not_told(
    folder: Path, certificates: Certificates, logged: pytest.CaptureFixture[str]
) -> None:
    """A server that knows the certificate answers; no line of the key is said."""
    certificate, key = (file.read_bytes() for file in certificates.client)
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    cluster = {"certificate-authority": str(certificates.authority)}
    context = certificates.server_context(ask_client=True)
    async with serve(lambda _request: ANSWERS["accepts"], tls=context) as server:
        said = await asked(written(folder, server.url, user, cluster))
        assert len(server.requests) == 1
    told = said + logged.readouterr().err
    assert "connecting" in told
    lines = key.decode().splitlines()[1:-1]
    assert not [line for line in (*lines, user["client-key-data"]) if line in told]
