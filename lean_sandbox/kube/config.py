"""From a kubeconfig or a service account to a :class:`~lean_sandbox.kube.connection.Connection`.

Where it looks, first match wins:

1. the ``--kubeconfig`` flag,
2. ``KUBECONFIG``: one file or several separated by ``:``; the first that has the wanted context
   (or, when none is named, a current context) is used, and is used alone: files are not merged,
3. the service account of the Pod, unless a context was asked for by name,
4. ``~/.kube/config``.

lightkube's ``KubeConfig`` does the parsing, see :mod:`.kubeconfig`; a process in a cluster never
needs it. Added here: the fields lightkube does not know (``tls-server-name``,
``interactiveMode``, ``provideClusterInfo``), relative paths, and an error for each thing that is
not supported (``proxy-url``, ``auth-provider``, impersonation) instead of silence.

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

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube import tls
from lean_sandbox.kube.auth import (
    Auth,
    NoAuth,
    TokenFileAuth,
    basic,
    bearer,
    is_token,
)
from lean_sandbox.kube.connection import Connection, parse_server
from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.kube.exec_plugin import ExecAuth, ExecSettings
from lean_sandbox.kube.kubeconfig import (
    HELP,
    SERVICE_ACCOUNT,
    Choice,
    Cluster,
    Place,
    Reader,
    User,
    UserExec,
    choose,
    files_of,
)

__all__ = ["SERVICE_ACCOUNT", "load", "own_namespace"]

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


def load(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
    read: Reader = choose,
) -> Connection:
    """Find the settings and return the connection they describe.

    ``read`` reads the kubeconfig: :func:`.kubeconfig.choose`, or :func:`.kubeconfig.apart` for a
    process that is to stay small.

    No request is made and no plugin is run. Raises ConfigError, which names file, field and the way
    out.
    """
    clock = clock or SystemClock()
    environ = os.environ if environ is None else environ
    files = files_of(
        kubeconfig, context, environ=environ, home=home, service_account=service_account
    )
    if files:
        return _connection(read(files, context), clock, environ)
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
    return _Chosen(choice, clock, environ).connection()


class _Chosen:
    """The context of a kubeconfig that is used."""

    def __init__(self, choice: Choice, clock: Clock, environ: Mapping[str, str]) -> None:
        self._choice = choice
        self._clock = clock
        self._environ = environ
        self._folder = Path(choice.file).absolute().parent

    def connection(self) -> Connection:
        choice = self._choice
        cluster_at = Place(choice.file, choice.cluster_field)
        user_at = Place(choice.file, choice.user_field)
        server = choice.cluster.server
        address = parse_server(server, source=f"{choice.file}: {cluster_at.field}")
        if not address.is_private:
            self._refuse_credentials(choice, user_at)
        secured = self._tls(choice.cluster, cluster_at) if address.tls else None
        if secured is not None and choice.user is not None:
            self._client_certificate(secured, choice.user, user_at)
        return Connection(
            server=server,
            ssl_context=secured,
            auth=self._auth(choice.user, choice.raw_user, user_at, choice.raw_cluster, secured),
            namespace=choice.namespace,
            tls_server_name=_text(choice.raw_cluster, "tls-server-name", cluster_at),
            source=f"kubeconfig {choice.file}, context {choice.context!r}",
        )

    def _refuse_credentials(self, choice: Choice, place: Place) -> None:
        """Refuse to send a credential where anybody on the way can read it."""
        user = choice.user
        for field, value in {
            "tokenFile": user and user.token_file,
            "token": user and user.token,
            "password": user and (user.username or user.password),
            "exec": user and user.exec,
        }.items():
            if value:
                raise place.at(field).error(
                    f"is not sent to {choice.cluster.server}, for http:// shows it to everybody on"
                    " the way",
                    "give the cluster's server an https:// URL",
                )

    def _absolute(self, file: str) -> Path:
        return self._folder / Path(file).expanduser()

    def _tls(self, cluster: Cluster, place: Place) -> ssl.SSLContext:
        has_authority = bool(cluster.certificate_auth or cluster.certificate_auth_data)
        if cluster.insecure:
            if has_authority:
                raise place.at("insecure-skip-tls-verify").error(
                    "excludes a certificate-authority", "remove one of the two"
                )
            return tls.careless()
        if cluster.certificate_auth_data:
            field = place.at("certificate-authority-data")
            pem = _decode(cluster.certificate_auth_data, field)
            return _trusting(field, data=pem.decode("ascii", "replace"))
        if cluster.certificate_auth:
            file = self._absolute(cluster.certificate_auth)
            return _trusting(place.at("certificate-authority"), file=file)
        return _trusting(place)

    def _client_certificate(self, context: ssl.SSLContext, user: User, place: Place) -> None:
        if not (user.client_cert or user.client_cert_data):
            return
        if not (user.client_key or user.client_key_data):
            raise place.at("client-key").error("is missing", "add client-key or client-key-data")
        certificate = self._pem(user.client_cert_data, user.client_cert, place, "certificate")
        key = self._pem(user.client_key_data, user.client_key, place, "key")
        try:
            tls.load_identity(context, certificate, key)
        except OSError as problem:
            raise place.at("client-certificate").error(
                f"certificate and key cannot be used: {problem}",
                "give PEM files that belong together, the key without a password",
            ) from problem

    def _pem(self, data: str | None, file: str | None, place: Place, what: str) -> bytes:
        if data:
            return _decode(data, place.at(f"client-{what}-data"))
        return self._bytes(file or "", place.at(f"client-{what}"))

    def _bytes(self, file: str, place: Place) -> bytes:
        try:
            return self._absolute(file).read_bytes()
        except OSError as problem:
            raise place.error(
                f"cannot be read: {problem}", "relative paths begin at the kubeconfig's folder"
            ) from problem

    def _auth(
        self,
        user: User | None,
        raw: dict[str, Any],
        place: Place,
        cluster: dict[str, Any],
        context: ssl.SSLContext | None,
    ) -> Auth:
        if user is None:
            return NoAuth()
        if user.token_file:
            file = self._absolute(user.token_file)
            if not file.is_file():
                raise place.at("tokenFile").error(
                    f"{file} does not exist", "relative paths begin at the kubeconfig's folder"
                )
            return TokenFileAuth(file, self._clock)
        if user.token:
            if not is_token(user.token):
                raise place.at("token").error("has characters no token has", "paste it again")
            return bearer(user.token)
        if user.username or user.password:
            return basic(user.username or "", user.password or "")
        if user.exec is not None:
            at = place.at("exec")
            settings = self._exec_settings(user.exec, raw["exec"], at, cluster)
            return self._exec_auth(settings, at, context)
        return NoAuth()

    def _exec_auth(
        self, settings: ExecSettings, place: Place, context: ssl.SSLContext | None
    ) -> ExecAuth:
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        if settings.interactive_mode == "Always" and not has_terminal:
            raise place.at("interactiveMode").error(
                "the plugin must ask a person, and there is no terminal",
                "use a service account token or a plugin that needs nobody",
            )
        return ExecAuth(
            settings, self._clock, context=context, environ=self._environ, has_terminal=has_terminal
        )

    def _exec_settings(
        self, found: UserExec, raw: dict[str, Any], place: Place, cluster: dict[str, Any]
    ) -> ExecSettings:
        if found.apiVersion not in _EXEC_VERSIONS:
            raise place.at("apiVersion").error(
                f"{found.apiVersion!r} is not supported", f"use one of {', '.join(_EXEC_VERSIONS)}"
            )
        mode = raw.get("interactiveMode")
        if mode is None and found.apiVersion == _EXEC_VERSIONS[0]:
            # v1 requires the field, v1beta1 has a default.
            raise place.at("interactiveMode").error("is missing", "set it to Never or IfAvailable")
        if mode not in (None, "Never", "IfAvailable", "Always"):
            raise place.at("interactiveMode").error(
                f"{mode!r} is not one of Never, IfAvailable, Always", "correct the file"
            )
        return ExecSettings(
            api_version=found.apiVersion,
            command=found.command,
            args=tuple(found.args or ()),
            env={pair.name: pair.value for pair in found.env or ()},
            interactive_mode=mode or "IfAvailable",
            install_hint=found.installHint or "",
            cluster=self._cluster_info(cluster, place) if raw.get("provideClusterInfo") else None,
            folder=str(self._folder),
        )

    def _cluster_info(self, cluster: dict[str, Any], place: Place) -> dict[str, Any]:
        """Return what a plugin is told of the cluster; files are inlined for it."""
        keys = ("server", "tls-server-name", "insecure-skip-tls-verify")
        info = {key: cluster[key] for key in keys if cluster.get(key)}
        if cluster.get("certificate-authority-data"):
            info["certificate-authority-data"] = cluster["certificate-authority-data"]
        elif cluster.get("certificate-authority"):
            pem = self._bytes(cluster["certificate-authority"], place.at("provideClusterInfo"))
            info["certificate-authority-data"] = base64.b64encode(pem).decode()
        for entry in cluster.get("extensions") or []:
            if isinstance(entry, dict) and entry.get("name") == _EXEC_EXTENSION:
                info["config"] = entry.get("extension")
        return info


def _text(mapping: dict[str, Any], key: str, place: Place) -> str | None:
    value = mapping.get(key)
    if value is not None and not isinstance(value, str):
        raise place.at(key).error("is not a text", "put it in quotes")
    return value or None


def _decode(data: str, place: Place) -> bytes:
    try:
        # People wrap long lines; everything else that is not base64 is a mistake.
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError) as problem:
        raise place.error(f"is not base64: {problem}", "paste it again") from problem


def _trusting(place: Place, *, file: Path | None = None, data: str | None = None) -> ssl.SSLContext:
    try:
        return tls.trusting(file=file, data=data)
    except (OSError, ValueError) as problem:
        raise place.error(
            f"is no readable certificate: {problem}",
            "give a PEM file with the cluster's certificate authority",
        ) from problem
