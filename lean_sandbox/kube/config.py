"""From a kubeconfig or a service account to a :class:`~lean_sandbox.kube.connection.Connection`.

Where it looks, first match wins:

1. the ``--kubeconfig`` flag,
2. ``KUBECONFIG``: one file or several separated by ``:``; the first that has the wanted context
   (or, when none is named, a current context) is used, and is used alone: files are not merged,
3. the service account of the Pod, unless a context was asked for by name,
4. ``~/.kube/config``.

The TLS context is made once: a changed CA or client certificate file takes a restart. Tokens in
files and credential plugins are refreshed, see :mod:`.auth` and :mod:`.exec_plugin`.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube import tls
from lean_sandbox.kube.auth import Auth, HeaderAuth, TokenFileAuth, basic, bearer, is_token
from lean_sandbox.kube.connection import Connection, parse_server
from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.kube.exec_plugin import ExecAuth, ExecSettings
from lean_sandbox.kube.kubeconfig import (
    HELP,
    SERVICE_ACCOUNT,
    Choice,
    Cluster,
    Place,
    User,
    choose,
    files_of,
)

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_RELATIVE = "relative paths begin at the kubeconfig's folder"


def load(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Find the settings and return the connection they describe.

    No request is made and no plugin is run. Raises ConfigError, which names file, field and the way
    out.
    """
    clock = clock or SystemClock()
    environ = os.environ if environ is None else environ
    files = files_of(
        kubeconfig, context, environ=environ, home=home, service_account=service_account
    )
    if files:
        return _connection(choose(files, context), clock, environ)
    if context is None and "KUBERNETES_SERVICE_HOST" in environ:
        found = _in_cluster(environ, service_account, clock)
        if found is not None:
            return found
    default = (home or Path.home()) / ".kube" / "config"
    raise ConfigError(
        f"no kubeconfig: neither --kubeconfig nor KUBECONFIG is set, {service_account}/token "
        f"is not there, and {default} does not exist",
        way_out=f"{HELP}, or run in a Pod with a service account",
    )


def own_namespace(service_account: Path = SERVICE_ACCOUNT) -> str:
    """Return the namespace of this Pod, "" outside of a cluster."""
    try:
        return (service_account / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _in_cluster(environ: Mapping[str, str], folder: Path, clock: Clock) -> Connection | None:
    token = folder / "token"
    if not token.is_file():
        return None
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    parse_server(server, source="KUBERNETES_SERVICE_HOST")
    authority = folder / "ca.crt"
    return Connection(
        server=server,
        ssl_context=_trusting(Place(str(authority)), file=authority),
        auth=TokenFileAuth(token, clock),
        # The projected volume may leave it out.
        namespace=own_namespace(folder) or "default",
        source=f"service account {folder}",
        in_cluster=True,
    )


def _connection(choice: Choice, clock: Clock, environ: Mapping[str, str]) -> Connection:
    """Turn what a kubeconfig says into a connection."""
    server = choice.cluster.server
    address = parse_server(server, source=f"{choice.file}: {choice.cluster_at.field}")
    if choice.user is not None and not address.is_private:
        _refuse_credentials(choice.user, choice.user_at, server)
    folder = choice.file.absolute().parent
    secured = _tls(choice.cluster, choice.cluster_at, folder) if address.tls else None
    if choice.user is not None and secured is not None:
        _client_certificate(secured, choice.user, choice.user_at, folder)
    auth = _fixed_auth(choice.user or User(), choice.user_at, folder, clock)
    if auth is None and choice.user is not None and choice.user.exec is not None:
        settings = _exec_settings(choice.user.exec, choice, folder)
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        if settings.interactive_mode == "Always" and not has_terminal:
            raise choice.user_at.at("exec.interactiveMode").error(
                "the plugin must ask a person, and there is no terminal",
                "use a service account token or a plugin that needs nobody",
            )
        auth = ExecAuth(
            settings, clock, context=secured, environ=environ, has_terminal=has_terminal
        )
    return Connection(
        server=server,
        ssl_context=secured,
        auth=auth or HeaderAuth(),
        namespace=choice.namespace,
        tls_server_name=choice.cluster.tls_server_name or None,
        source=f"kubeconfig {choice.file}, context {choice.context!r}",
    )


def _refuse_credentials(user: User, place: Place, server: str) -> None:
    """Refuse to send a credential where anybody on the way can read it."""
    for field, value in {
        "tokenFile": user.token_file,
        "token": user.token,
        "password": user.username or user.password,
        "exec": user.exec,
    }.items():
        if value:
            raise place.at(field).error(
                f"is not sent to {server}, for http:// shows it to everybody on the way",
                "give the cluster's server an https:// URL",
            )


# -- TLS -------------------------------------------------------------------------------------------


def _tls(cluster: Cluster, place: Place, folder: Path) -> ssl.SSLContext:
    data, file = cluster.certificate_authority_data, cluster.certificate_authority
    if cluster.insecure_skip_tls_verify:
        if data or file:
            raise place.at("insecure-skip-tls-verify").error(
                "excludes a certificate-authority", "remove one of the two"
            )
        return tls.careless()
    if data:
        field = place.at("certificate-authority-data")
        return _trusting(field, data=_decode(data, field).decode("ascii", "replace"))
    if file:
        return _trusting(place.at("certificate-authority"), file=folder / Path(file).expanduser())
    return _trusting(place)


def _trusting(place: Place, *, file: Path | None = None, data: str | None = None) -> ssl.SSLContext:
    try:
        return tls.trusting(file=file, data=data)
    except (OSError, ValueError) as problem:
        raise place.error(
            f"is no readable certificate: {problem}",
            "give a PEM file with the cluster's certificate authority",
        ) from problem


def _client_certificate(context: ssl.SSLContext, user: User, place: Place, folder: Path) -> None:
    if not (user.client_certificate or user.client_certificate_data):
        return
    if not (user.client_key or user.client_key_data):
        raise place.at("client-key").error("is missing", "add client-key or client-key-data")
    at = place.at("client-certificate")
    certificate = _pem(user.client_certificate_data, user.client_certificate, at, folder)
    key = _pem(user.client_key_data, user.client_key, place.at("client-key"), folder)
    try:
        tls.load_identity(context, certificate, key)
    except OSError as problem:
        raise at.error(
            f"certificate and key cannot be used: {problem}",
            "give PEM files that belong together, the key without a password",
        ) from problem


def _pem(data: str | None, file: str | None, place: Place, folder: Path) -> bytes:
    if data:
        return _decode(data, Place(place.source, f"{place.field}-data"))
    try:
        return (folder / Path(file or "").expanduser()).read_bytes()
    except OSError as problem:
        raise place.error(f"cannot be read: {problem}", _RELATIVE) from problem


def _decode(data: str, place: Place) -> bytes:
    try:
        # People wrap long lines; everything else that is not base64 is a mistake.
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError) as problem:
        raise place.error(f"is not base64: {problem}", "paste it again") from problem


# -- credentials -----------------------------------------------------------------------------------


def _fixed_auth(user: User, place: Place, folder: Path, clock: Clock) -> Auth | None:
    if user.token_file:
        file = folder / Path(user.token_file).expanduser()
        if not file.is_file():
            raise place.at("tokenFile").error(f"{file} does not exist", _RELATIVE)
        return TokenFileAuth(file, clock)
    if user.token:
        if not is_token(user.token):
            raise place.at("token").error("has characters no token has", "paste it again")
        return bearer(user.token)
    if user.username or user.password:
        return basic(user.username or "", user.password or "")
    return None


def _exec_settings(found: ExecSettings, choice: Choice, folder: Path) -> ExecSettings:
    """Return a plugin's settings with what the file has elsewhere."""
    place = choice.user_at.at("exec")
    if found.api_version not in _EXEC_VERSIONS:
        raise place.at("apiVersion").error(
            f"{found.api_version!r} is not supported", f"use one of {', '.join(_EXEC_VERSIONS)}"
        )
    if found.interactive_mode is None and found.api_version == _EXEC_VERSIONS[0]:
        # v1 requires the field, v1beta1 has a default.
        raise place.at("interactiveMode").error("is missing", "set it to Never or IfAvailable")
    told = _cluster_info(choice.cluster, place, folder) if found.provide_cluster_info else None
    return msgspec.structs.replace(found, cluster=told, folder=str(folder))


def _cluster_info(cluster: Cluster, place: Place, folder: Path) -> dict[str, Any]:
    """Return what a plugin is told of the cluster; files are inlined for it."""
    authority = cluster.certificate_authority_data
    if not authority and cluster.certificate_authority:
        pem = _pem(None, cluster.certificate_authority, place.at("provideClusterInfo"), folder)
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
