"""From a kubeconfig or a service account to a :class:`~lean_sandbox.api.connection.Connection`.

Where it looks, first match wins:

1. the ``--kubeconfig`` flag,
2. ``KUBECONFIG``: one file or several separated by ``:``; the first that has the wanted context
   (or, when none is named, a current context) is used, and is used alone: files are not merged,
3. the service account of the Pod, unless a context was asked for by name,
4. ``~/.kube/config``.

lightkube's ``KubeConfig`` does the parsing. It is imported inside :func:`load`, because its package
costs about 8 MiB of resident memory (the HTTP library and every model); a process in a cluster
never needs it. Added here: the fields lightkube does not know (``tls-server-name``,
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
from typing import TYPE_CHECKING, Any

import msgspec

from lean_sandbox.api import tls
from lean_sandbox.api.auth import (
    Auth,
    NoAuth,
    TokenFileAuth,
    basic,
    bearer,
    is_token,
)
from lean_sandbox.api.connection import Connection, parse_server
from lean_sandbox.api.errors import ConfigError
from lean_sandbox.api.exec_plugin import ExecAuth, ExecSettings
from lean_sandbox.clock import Clock, SystemClock

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig
    from lightkube.config.models import Cluster, User, UserExec

__all__ = ["SERVICE_ACCOUNT", "load"]

#: Where the kubelet mounts the token, CA and namespace of a Pod's service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_KUBECONFIG_HELP = "point --kubeconfig or KUBECONFIG at a kubeconfig file"


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
    if kubeconfig:
        return _from_files([Path(kubeconfig).expanduser()], context, clock, environ)
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return _from_files([file.expanduser() for file in listed], context, clock, environ)
    if context is None and "KUBERNETES_SERVICE_HOST" in environ:
        found = _in_cluster(environ, service_account, clock)
        if found is not None:
            return found
    default = (home or Path.home()) / ".kube" / "config"
    if not default.is_file():
        raise ConfigError(
            f"no kubeconfig: neither --kubeconfig nor KUBECONFIG is set, {service_account}/token "
            f"is not there, and {default} does not exist",
            way_out=f"{_KUBECONFIG_HELP}, or run in a Pod with a service account",
        )
    return _from_files([default], context, clock, environ)


def _in_cluster(environ: Mapping[str, str], folder: Path, clock: Clock) -> Connection | None:
    token = folder / "token"
    if not token.is_file():
        return None
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    parse_server(server, source="KUBERNETES_SERVICE_HOST")
    try:
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        # Only a default for leases and the like; the projected volume may leave it out.
        namespace = ""
    authority = folder / "ca.crt"
    return Connection(
        server=server,
        ssl_context=_trusting(_Place(str(authority)), file=authority),
        auth=TokenFileAuth(token, clock),
        namespace=namespace or "default",
        source=f"service account {folder}",
    )


class _Place:
    """Where in a file something stands, for messages."""

    def __init__(self, source: str, field: str = "") -> None:
        self.source = source
        self.field = field

    def at(self, field: str) -> _Place:
        return _Place(self.source, f"{self.field}.{field}" if self.field else field)

    def error(self, problem: str, way_out: str = "") -> ConfigError:
        return ConfigError(problem, source=self.source, field=self.field, way_out=way_out)


def _from_files(
    files: list[Path], wanted: str | None, clock: Clock, environ: Mapping[str, str]
) -> Connection:
    present = [file for file in files if file.is_file()]
    if not present:
        names = ", ".join(map(str, files))
        raise ConfigError("the kubeconfig does not exist", source=names, way_out=_KUBECONFIG_HELP)
    known: list[str] = []
    for file in present:
        document = _read(file)
        name = wanted or document.get("current-context")
        contexts = _names(document, "contexts", _Place(str(file)))
        known += contexts
        if name in contexts:
            return _Reader(file, document, clock, environ).connection(str(name))
    sources = ", ".join(map(str, present))
    listing = f"contexts there: {', '.join(known)}" if known else "there are no contexts in it"
    if wanted:
        raise ConfigError(
            f"there is no context {wanted!r}",
            source=sources,
            field="contexts",
            way_out=f"name one that exists with --context ({listing})",
        )
    raise ConfigError(
        "current-context is not set or names no context",
        source=sources,
        field="current-context",
        way_out=f"name one with --context ({listing})",
    )


def _read(file: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 -- not needed in a cluster, like lightkube below

    place = _Place(str(file))
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise place.error(f"cannot be read: {problem}", _KUBECONFIG_HELP) from problem
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = getattr(problem, "problem", None) or "unreadable"
        raise place.error(f"is not YAML: {line}{what}", "correct the file") from problem
    if not isinstance(document, dict):
        raise place.error("is not a kubeconfig: its top level is no mapping", _KUBECONFIG_HELP)
    return document


def _entries(document: dict[str, Any], section: str, place: _Place) -> list[dict[str, Any]]:
    entries = document.get(section) or []
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in entries
    ):
        raise place.at(section).error("is not a list of named entries", "correct the file")
    return entries


def _names(document: dict[str, Any], section: str, place: _Place) -> list[str]:
    return [entry["name"] for entry in _entries(document, section, place)]


class _Reader:
    """One kubeconfig file, of which one context is used."""

    def __init__(
        self, file: Path, document: dict[str, Any], clock: Clock, environ: Mapping[str, str]
    ) -> None:
        self._file = file
        self._document = document
        self._clock = clock
        self._environ = environ
        self._place = _Place(str(file))
        self._folder = file.absolute().parent

    def connection(self, name: str) -> Connection:
        context, context_at = self._entry("contexts", "context", name)
        if not isinstance(context.get("cluster"), str):
            raise context_at.at("cluster").error("is missing", "name a cluster of the file")
        cluster_name = context["cluster"]
        user_name = context.get("user") or ""
        cluster, cluster_at = self._entry("clusters", "cluster", cluster_name)
        user, user_at = self._entry("users", "user", user_name) if user_name else ({}, context_at)
        self._refuse(cluster, cluster_at, user, user_at)
        found = self._parse(name, context, cluster, user)
        address = parse_server(found.cluster.server, source=f"{self._file}: {cluster_at.field}")
        secured = self._tls(found.cluster, cluster_at) if address.tls else None
        if secured is not None and found.user is not None:
            self._client_certificate(secured, found.user, user_at)
        return Connection(
            server=found.cluster.server,
            ssl_context=secured,
            auth=self._auth(found.user, user, user_at, cluster, secured),
            namespace=found.namespace,
            tls_server_name=_text(cluster, "tls-server-name", cluster_at),
            source=f"kubeconfig {self._file}, context {name!r}",
        )

    def _entry(self, section: str, key: str, name: str) -> tuple[dict[str, Any], _Place]:
        place = self._place.at(f"{section}[{name}]")
        for entry in _entries(self._document, section, self._place):
            if entry["name"] == name:
                value = entry.get(key)
                if not isinstance(value, dict):
                    raise place.at(key).error("is missing or no mapping", "correct the file")
                return value, place.at(key)
        names = ", ".join(_names(self._document, section, self._place)) or "none"
        raise place.error("does not exist", f"{section} in this file: {names}")

    def _refuse(
        self, cluster: dict[str, Any], cluster_at: _Place, user: dict[str, Any], user_at: _Place
    ) -> None:
        """Refuse what would be dangerous or baffling to leave out silently."""
        if cluster.get("proxy-url"):
            raise cluster_at.at("proxy-url").error(
                "proxies are not supported", "give the server a direct route and remove the field"
            )
        if not isinstance(cluster.get("server"), str) or not cluster["server"]:
            raise cluster_at.at("server").error("is missing", "give a URL like https://host:6443")
        if user.get("auth-provider"):
            raise user_at.at("auth-provider").error(
                "is not supported (Kubernetes removed it too)", "use a credential plugin: exec"
            )
        if any(user.get(key) for key in ("as", "as-uid", "as-groups", "as-user-extra")):
            raise user_at.at("as").error(
                "impersonation is not supported", "use a user that has the rights itself"
            )

    def _parse(
        self, name: str, context: dict[str, Any], cluster: dict[str, Any], user: dict[str, Any]
    ) -> SingleConfig:
        from lightkube.config.kubeconfig import KubeConfig  # noqa: PLC0415 -- see the module
        from lightkube.core.exceptions import ConfigError as LightkubeConfigError  # noqa: PLC0415

        # Only what is used is parsed, so that a broken neighbour in the file does no harm.
        user_name = context.get("user")
        chosen = {
            "current-context": name,
            "contexts": [{"name": name, "context": context}],
            "clusters": [{"name": context["cluster"], "cluster": cluster}],
            "users": [{"name": user_name, "user": user}] if user_name else [],
        }
        try:
            found = KubeConfig.from_dict(chosen, fname=self._file.absolute()).get()
        except (LightkubeConfigError, msgspec.ValidationError, KeyError, TypeError) as problem:
            raise self._place.at(f"contexts[{name}]").error(
                f"it, its cluster or its user is malformed: {problem}", "correct the file"
            ) from problem
        assert found is not None  # The context is there, and no default was given.
        return found

    def _absolute(self, file: str) -> Path:
        return self._folder / Path(file).expanduser()

    def _tls(self, cluster: Cluster, place: _Place) -> ssl.SSLContext:
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

    def _client_certificate(self, context: ssl.SSLContext, user: User, place: _Place) -> None:
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

    def _pem(self, data: str | None, file: str | None, place: _Place, what: str) -> bytes:
        if data:
            return _decode(data, place.at(f"client-{what}-data"))
        return self._bytes(file or "", place.at(f"client-{what}"))

    def _bytes(self, file: str, place: _Place) -> bytes:
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
        place: _Place,
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
        self, settings: ExecSettings, place: _Place, context: ssl.SSLContext | None
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
        self, found: UserExec, raw: dict[str, Any], place: _Place, cluster: dict[str, Any]
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

    def _cluster_info(self, cluster: dict[str, Any], place: _Place) -> dict[str, Any]:
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


def _text(mapping: dict[str, Any], key: str, place: _Place) -> str | None:
    value = mapping.get(key)
    if value is not None and not isinstance(value, str):
        raise place.at(key).error("is not a text", "put it in quotes")
    return value or None


def _decode(data: str, place: _Place) -> bytes:
    try:
        # People wrap long lines; everything else that is not base64 is a mistake.
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError) as problem:
        raise place.error(f"is not base64: {problem}", "paste it again") from problem


def _trusting(
    place: _Place, *, file: Path | None = None, data: str | None = None
) -> ssl.SSLContext:
    try:
        return tls.trusting(file=file, data=data)
    except (OSError, ValueError) as problem:
        raise place.error(
            f"is no readable certificate: {problem}",
            "give a PEM file with the cluster's certificate authority",
        ) from problem
