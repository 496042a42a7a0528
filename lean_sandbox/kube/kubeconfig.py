"""The part of a kubeconfig that one context names: found, read and checked.

Only what is used is decoded, so that a broken neighbour in the file does no harm. What would be
dangerous or baffling to leave out silently (proxies, auth providers, impersonation) is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.kube.exec_plugin import ExecSettings

T = TypeVar("T")

HELP = "point --kubeconfig or KUBECONFIG at a kubeconfig file"
#: Where the kubelet mounts the token, CA and namespace of a Pod's service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CORRECT = "correct the file"
_FIELD = re.compile(r" - at `\$\.?([^`]*)`$")


class Context(msgspec.Struct, frozen=True):
    """Which cluster, which user, which namespace."""

    cluster: str
    user: str | None = None
    namespace: str | None = None


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
    username: str | None = None
    password: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None


class Place(msgspec.Struct, frozen=True):
    """Where in a file something stands, for messages."""

    source: str
    field: str = ""

    def at(self, field: str) -> Place:
        """Return a place below this one."""
        return Place(self.source, f"{self.field}.{field}" if self.field and field else field)

    def error(self, problem: str, way_out: str = "") -> ConfigError:
        """Return an error that names this place."""
        return ConfigError(problem, source=self.source, field=self.field, way_out=way_out)


class Choice(msgspec.Struct, frozen=True):
    """One context of one file, and where its cluster and its user stand in it."""

    file: Path
    context: str
    namespace: str
    cluster: Cluster
    cluster_at: Place
    user: User | None
    user_at: Place


def files_of(
    kubeconfig: str | None,
    context: str | None,
    *,
    environ: Mapping[str, str],
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> list[Path]:
    """Return the kubeconfigs that are to be read; none where a service account or nothing is used.

    ``kubeconfig`` names one, then comes the list in KUBECONFIG, then, outside of a cluster or for a
    context, the one of the user's home.
    """
    if kubeconfig:
        return [Path(kubeconfig).expanduser()]
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return [file.expanduser() for file in listed]
    is_inside = context is None and "KUBERNETES_SERVICE_HOST" in environ
    if is_inside and (service_account / "token").is_file():
        return []
    default = (home or Path.home()) / ".kube" / "config"
    return [default] if default.is_file() else []


def choose(files: list[Path], wanted: str | None) -> Choice:
    """Read the first of ``files`` that has the wanted context, or else a current one.

    Raises ConfigError for files that are missing or malformed, and for fields not supported.
    """
    present = [file for file in files if file.is_file()]
    if not present:
        names = ", ".join(map(str, files))
        raise ConfigError("the kubeconfig does not exist", source=names, way_out=HELP)
    known: list[str] = []
    for file in present:
        document, place = _read(file), Place(str(file))
        name = wanted or document.get("current-context")
        contexts = [entry["name"] for entry in _entries(document, "contexts", place)]
        if name in contexts:
            return _choice(file, document, place, str(name))
        known += contexts
    problem, field = "current-context is not set or names no context", "current-context"
    if wanted:
        problem, field = f"there is no context {wanted!r}", "contexts"
    listing = f"contexts there: {', '.join(known)}" if known else "there are no contexts in it"
    raise ConfigError(
        problem,
        source=", ".join(map(str, present)),
        field=field,
        way_out=f"name one that exists with --context ({listing})",
    )


def _read(file: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 -- 0.9 MiB, and a Pod reads no kubeconfig

    place = Place(str(file))
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise place.error(f"cannot be read: {problem}", HELP) from problem
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = getattr(problem, "problem", None) or "unreadable"
        raise place.error(f"is not YAML: {line}{what}", _CORRECT) from problem
    except RecursionError as problem:
        raise place.error("is nested too deeply", _CORRECT) from problem
    if not isinstance(document, dict):
        raise place.error("is not a kubeconfig: its top level is no mapping", HELP)
    return document


def _entries(document: dict[str, Any], section: str, place: Place) -> list[dict[str, Any]]:
    entries = document.get(section) or []
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in entries
    ):
        raise place.at(section).error("is not a list of named entries", _CORRECT)
    return entries


def _choice(file: Path, document: dict[str, Any], place: Place, name: str) -> Choice:
    raw, context_at = _entry(document, place, "context", name)
    context = _converted(raw, Context, context_at)
    raw, cluster_at = _entry(document, place, "cluster", context.cluster)
    cluster = _converted(raw, Cluster, cluster_at)
    if cluster.proxy_url:
        raise cluster_at.at("proxy-url").error(
            "proxies are not supported", "give the server a direct route and remove the field"
        )
    if not cluster.server:
        raise cluster_at.at("server").error("is missing", "give a URL like https://host:6443")
    user, user_at = None, context_at
    if context.user:
        raw, user_at = _entry(document, place, "user", context.user)
        if raw.get("auth-provider"):
            raise user_at.at("auth-provider").error(
                "is not supported (Kubernetes removed it too)", "use a credential plugin: exec"
            )
        if any(raw.get(key) for key in ("as", "as-uid", "as-groups", "as-user-extra")):
            raise user_at.at("as").error(
                "impersonation is not supported", "use a user that has the rights itself"
            )
        user = _converted(raw, User, user_at)
    return Choice(file, name, context.namespace or "default", cluster, cluster_at, user, user_at)


def _entry(
    document: dict[str, Any], place: Place, key: str, name: str
) -> tuple[dict[str, Any], Place]:
    """Return what an entry, such as a user, holds under ``key``, and where that stands."""
    section = f"{key}s"
    entries = _entries(document, section, place)
    at = place.at(f"{section}[{name}]")
    for entry in entries:
        if entry["name"] == name:
            value = entry.get(key)
            if not isinstance(value, dict):
                raise at.at(key).error("is missing or no mapping", _CORRECT)
            return value, at.at(key)
    names = ", ".join(entry["name"] for entry in entries) or "none"
    raise at.error("does not exist", f"{section} in this file: {names}")


def _converted(raw: dict[str, Any], type_: type[T], place: Place) -> T:
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError as problem:
        text = str(problem)
        field = _FIELD.search(text)
        at = place.at(field[1]) if field else place
        raise at.error(f"is malformed: {_FIELD.sub('', text)}", _CORRECT) from problem
