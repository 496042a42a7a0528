"""From a kubeconfig or a service account to a :class:`~lean_sandbox.kube.connection.Connection`.

Where it looks, first match wins:

1. the ``--kubeconfig`` flag,
2. ``KUBECONFIG``: one file or several separated by ``:``; the first that has the wanted context
   (when none is named, the first ``current-context``) is used alone: files are not merged,
3. the service account of the Pod, unless a context was asked for by name,
4. ``~/.kube/config``.

Only what one context names is decoded, so that a broken neighbour in the file does no harm. What
would be dangerous or confusing to ignore silently (proxies, passwords, auth providers,
impersonation) is refused. The TLS context is made once: a changed CA or client certificate file
of a kubeconfig takes a restart.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.errors import ConfigError, yaml_problem
from lean_sandbox.kube.auth import (
    Auth,
    ExecAuth,
    ExecSettings,
    TokenFileAuth,
    is_token,
    load_identity,
)
from lean_sandbox.kube.connection import Connection, insecure_context, parse_server, tls_context

T = TypeVar("T")

#: Where the kubelet mounts the token, CA and namespace of a Pod's service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_HELP = "point --kubeconfig or KUBECONFIG at a kubeconfig file"
_RELATIVE = "correct the path; a relative one begins at the kubeconfig's folder"
_CORRECT = "correct the file"
_FIELD = re.compile(r" - at `\$\.?([^`]*)`$")


class Context(msgspec.Struct, frozen=True):
    """Which cluster, which user."""

    cluster: str
    user: str | None = None


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """Where to connect to."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[Any] | None = None


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """Who connects."""

    exec: ExecSettings | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None


class _Place(msgspec.Struct, frozen=True):
    file: Path
    field: str = ""

    def at(self, field: str) -> _Place:
        return _Place(self.file, f"{self.field}.{field}" if self.field else field)

    def error(self, problem: str, way_out: str) -> ConfigError:
        return ConfigError(problem, source=str(self.file), field=self.field, way_out=way_out)

    @property
    def folder(self) -> Path:
        return self.file.absolute().parent

    def path(self, text: str) -> Path:
        return self.folder / _expanded(text)


def load(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    clock: Clock | None = None,
) -> Connection:
    """Return the connection to use; makes no request. Raises ConfigError."""
    clock = clock or SystemClock()
    default = _expanded("~/.kube/config")
    is_inside = context is None and "KUBERNETES_SERVICE_HOST" in os.environ
    named = [kubeconfig] if kubeconfig else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    files = [_expanded(each) for each in named if each]
    if not files and is_inside and (SERVICE_ACCOUNT / "token").is_file():
        return _in_cluster(clock)
    if not files and not default.is_file():
        raise ConfigError(
            f"no kubeconfig: neither --kubeconfig nor KUBECONFIG is set, {SERVICE_ACCOUNT}/token "
            f"is not there, and {default} does not exist",
            way_out=f"{_HELP}, or run in a Pod with a service account",
        )
    file, document, name = _find(files or [default], context)
    return _connection(_Place(file), document, name, clock)


def _expanded(path: str) -> Path:
    # Path.expanduser raises for a user who is unknown or has no home.
    return Path(os.path.expanduser(path))  # noqa: PTH111


def own_namespace() -> str:
    """Return the namespace of this Pod, "" outside of a cluster."""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _in_cluster(clock: Clock) -> Connection:
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    authority = SERVICE_ACCOUNT / "ca.crt"
    return Connection(
        server=server,
        ssl_context=_tls_context(_Place(authority), file=authority),
        auth=TokenFileAuth(SERVICE_ACCOUNT / "token", clock),
        source=f"KUBERNETES_SERVICE_HOST, service account {SERVICE_ACCOUNT}",
        authority=authority,
        in_cluster=True,
    )


def _find(files: list[Path], wanted: str | None) -> tuple[Path, dict[str, Any], str]:
    # A pipe will do, as in --kubeconfig <(kubectl config view --raw).
    present = [file for file in files if file.exists() and not file.is_dir()]
    if not present:
        names = ", ".join(map(str, files))
        is_folder = any(file.is_dir() for file in files)
        problem = "this is a folder" if is_folder else "the kubeconfig does not exist"
        raise ConfigError(problem, source=names, way_out=_HELP)
    name = wanted
    known: list[str] = []
    for file in present:
        document = _read(_Place(file))
        name = name or document.get("current-context")
        contexts = [entry["name"] for entry in _entries(document, "contexts", _Place(file))]
        if name in contexts:
            return file, document, str(name)
        known += contexts
    listing = f"contexts there: {', '.join(known)}" if known else "there are no contexts in it"
    raise ConfigError(
        f"there is no context {name!r}" if name else "is not set",
        source=", ".join(map(str, present)),
        field="contexts" if wanted else "current-context",
        way_out=f"name one that exists with --context ({listing})",
    )


def _read(place: _Place) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 -- 0.9 MiB, and a Pod reads no kubeconfig

    try:
        document = yaml.safe_load(place.file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise place.error(f"cannot be read: {problem}", _HELP) from problem
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise place.error(f"is not YAML: {line}{yaml_problem(problem)}", _CORRECT) from problem
    except RecursionError as problem:
        raise place.error("is nested too deeply", _CORRECT) from problem
    if not isinstance(document, dict):
        raise place.error("is not a kubeconfig: its top level is not a mapping", _HELP)
    return document


def _entries(document: dict[str, Any], section: str, place: _Place) -> list[dict[str, Any]]:
    entries = document.get(section) or []
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in entries
    ):
        raise place.at(section).error("is not a list of named entries", _CORRECT)
    return entries


def _entry(
    document: dict[str, Any], place: _Place, key: str, name: str
) -> tuple[dict[str, Any], _Place]:
    section = f"{key}s"
    entries = _entries(document, section, place)
    at = place.at(f"{section}[{name}]")
    for entry in entries:
        if entry["name"] == name:
            value = entry.get(key)
            if not isinstance(value, dict):
                raise at.at(key).error("is missing or not a mapping", _CORRECT)
            return value, at.at(key)
    names = ", ".join(entry["name"] for entry in entries) or "none"
    raise at.error("does not exist", f"name one of the {section} in this file: {names}")


def _converted(raw: dict[str, Any], type_: type[T], place: _Place) -> T:
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError as problem:
        text = str(problem)
        field = _FIELD.search(text)
        at = place.at(field[1]) if field else place
        raise at.error(f"is malformed: {_FIELD.sub('', text)}", _CORRECT) from problem


def _connection(place: _Place, document: dict[str, Any], name: str, clock: Clock) -> Connection:
    raw, at = _entry(document, place, "context", name)
    context = _converted(raw, Context, at)
    raw, cluster_at = _entry(document, place, "cluster", context.cluster)
    cluster = _converted(raw, Cluster, cluster_at)
    if cluster.proxy_url:
        raise cluster_at.at("proxy-url").error(
            "proxies are not supported", "give the server a direct route and remove the field"
        )
    if not cluster.server:
        raise cluster_at.at("server").error("is missing", "give a URL like https://host:6443")
    user = User()
    user_at = at
    if context.user:
        raw, user_at = _entry(document, place, "user", context.user)
        user = _user(raw, user_at)
    address = parse_server(cluster.server, source=f"{place.file}: {cluster_at.field}")
    secured = _tls(cluster, cluster_at) if address.tls else None
    if secured is not None:
        _client_certificate(secured, user, user_at)
    if not address.is_private:
        _refuse_credentials(user, user_at, cluster.server)
    return Connection(
        server=cluster.server,
        ssl_context=secured,
        auth=_auth(user, user_at, cluster, secured, clock),
        tls_server_name=cluster.tls_server_name,
        source=f"kubeconfig {place.file}, context {name!r}",
    )


def _user(raw: dict[str, Any], place: _Place) -> User:
    for field in ("auth-provider", "username"):
        if raw.get(field):
            raise place.at(field).error(
                "is not supported (Kubernetes removed it too)",
                "remove it; use a certificate, a token or a credential plugin",
            )
    if any(raw.get(key) for key in ("as", "as-uid", "as-groups", "as-user-extra")):
        raise place.at("as").error(
            "impersonation is not supported", "use a user that has the rights itself"
        )
    return _converted(raw, User, place)


def _refuse_credentials(user: User, place: _Place, server: str) -> None:
    for field, value in {
        "tokenFile": user.token_file,
        "token": user.token,
        "exec": user.exec,
    }.items():
        if value:
            raise place.at(field).error(
                f"is not sent to {server}, for http:// shows it to everybody on the way",
                "give the cluster's server an https:// URL",
            )


def _tls(cluster: Cluster, place: _Place) -> ssl.SSLContext:
    data = cluster.certificate_authority_data
    file = cluster.certificate_authority
    if cluster.insecure_skip_tls_verify:
        if data or file:
            raise place.at("insecure-skip-tls-verify").error(
                "excludes a certificate-authority", "remove one of the two"
            )
        return insecure_context()
    if data:
        field = place.at("certificate-authority-data")
        return _tls_context(field, data=_decode(data, field).decode("ascii", "backslashreplace"))
    if file:
        return _tls_context(place.at("certificate-authority"), file=place.path(file))
    return _tls_context(place)


def _tls_context(
    place: _Place, *, file: Path | None = None, data: str | None = None
) -> ssl.SSLContext:
    try:
        return tls_context(file=file, data=data)
    except (OSError, ValueError) as problem:
        raise place.error(
            f"is not a readable certificate: {problem}",
            "give a PEM file with the cluster's certificate authority",
        ) from problem


def _client_certificate(context: ssl.SSLContext, user: User, place: _Place) -> None:
    if not (user.client_certificate or user.client_certificate_data):
        return
    if not (user.client_key or user.client_key_data):
        raise place.at("client-key").error("is missing", "add client-key or client-key-data")
    at = place.at("client-certificate")
    certificate = _pem(user.client_certificate_data, user.client_certificate, at)
    key = _pem(user.client_key_data, user.client_key, place.at("client-key"))
    try:
        load_identity(context, certificate, key)
    except FileNotFoundError as problem:
        raise at.error(
            f"cannot be loaded: {problem}", "name a folder that can be written in TMPDIR"
        ) from problem
    except OSError as problem:
        raise at.error(
            f"certificate and key cannot be used: {problem}",
            "give PEM files that belong together, the key without a password",
        ) from problem


def _pem(data: str | None, file: str | None, place: _Place) -> bytes:
    if data:
        return _decode(data, _Place(place.file, f"{place.field}-data"))
    try:
        return place.path(file or "").read_bytes()
    except OSError as problem:
        raise place.error(f"cannot be read: {problem}", _RELATIVE) from problem


def _decode(data: str, place: _Place) -> bytes:
    try:
        # People wrap long lines; everything else that is not base64 is a mistake.
        return base64.b64decode("".join(data.split()), validate=True)
    except ValueError as problem:
        raise place.error(f"is not base64: {problem}", "paste it again") from problem


def _auth(
    user: User, place: _Place, cluster: Cluster, context: ssl.SSLContext | None, clock: Clock
) -> Auth:
    if user.token_file:
        file = place.path(user.token_file)
        if not file.is_file():
            raise place.at("tokenFile").error(f"{file} does not exist", _RELATIVE)
        return TokenFileAuth(file, clock)
    if user.token:
        if not is_token(user.token):
            raise place.at("token").error("has characters no token can have", "paste it again")
        return Auth(f"Bearer {user.token}")
    if user.exec is None:
        return Auth()
    settings = _exec_settings(user.exec, place.at("exec"), cluster)
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if settings.interactive_mode == "Always" and not has_terminal:
        raise place.at("exec.interactiveMode").error(
            "the plugin must ask a person, and there is no terminal",
            "use a service account token or a plugin that needs nobody",
        )
    return ExecAuth(settings, clock, context=context, has_terminal=has_terminal)


def _exec_settings(found: ExecSettings, place: _Place, cluster: Cluster) -> ExecSettings:
    if found.api_version not in _EXEC_VERSIONS:
        raise place.at("apiVersion").error(
            f"{found.api_version!r} is not supported", f"use one of {', '.join(_EXEC_VERSIONS)}"
        )
    if found.interactive_mode is None and found.api_version == _EXEC_VERSIONS[0]:
        # v1 requires the field, v1beta1 has a default.
        raise place.at("interactiveMode").error("is missing", "set it to Never or IfAvailable")
    info = _cluster_info(cluster, place) if found.provide_cluster_info else None
    return msgspec.structs.replace(found, cluster=info, folder=str(place.folder))


def _cluster_info(cluster: Cluster, place: _Place) -> dict[str, Any]:
    authority = cluster.certificate_authority_data
    if not authority and cluster.certificate_authority:
        pem = _pem(None, cluster.certificate_authority, place.at("provideClusterInfo"))
        authority = base64.b64encode(pem).decode()
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
    }
    info = {key: value for key, value in info.items() if value}
    for entry in cluster.extensions or ():
        if isinstance(entry, dict) and entry.get("name") == _EXEC_EXTENSION:
            info["config"] = entry.get("extension")
    return info
