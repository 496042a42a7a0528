"""The part of a kubeconfig that one context names, read by lightkube.

lightkube and the YAML parser cost about 8 MiB of resident memory that nothing needs again, so a
process that lives long has them work :func:`apart`, in a child that ends with the answer. That
takes 0.15 s, in which a start can do something else (:class:`Reading`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from lean_sandbox.kube.errors import ConfigError

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

T = TypeVar("T")

HELP = "point --kubeconfig or KUBECONFIG at a kubeconfig file"
#: Where the kubelet mounts the token, CA and namespace of a Pod's service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CHILD_TIMEOUT_S = 30.0


class NameValue(msgspec.Struct, frozen=True):
    """An environment variable of a credential plugin."""

    name: str
    value: str


class UserExec(msgspec.Struct, frozen=True):
    """A credential plugin, in lightkube's words."""

    apiVersion: str
    command: str
    env: tuple[NameValue, ...] | None = None
    args: tuple[str, ...] | None = None
    installHint: str | None = None


class User(
    msgspec.Struct,
    frozen=True,
    rename={
        "token_file": "tokenFile",
        "client_cert": "client-certificate",
        "client_cert_data": "client-certificate-data",
        "client_key": "client-key",
        "client_key_data": "client-key-data",
    },
):
    """Who connects, in lightkube's words."""

    exec: UserExec | None = None
    username: str | None = None
    password: str | None = None
    token: str | None = None
    token_file: str | None = None
    client_cert: str | None = None
    client_cert_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None


class Cluster(
    msgspec.Struct,
    frozen=True,
    rename={
        "certificate_auth": "certificate-authority",
        "certificate_auth_data": "certificate-authority-data",
        "insecure": "insecure-skip-tls-verify",
    },
):
    """Where to connect to, in lightkube's words."""

    server: str
    certificate_auth: str | None = None
    certificate_auth_data: str | None = None
    insecure: bool = False


class Choice(msgspec.Struct, frozen=True):
    """One context of one file: as lightkube understands it, and with every field of the file."""

    file: str
    context: str
    namespace: str
    cluster: Cluster
    raw_cluster: dict[str, Any]
    # Where the entries stand in the file, for messages.
    cluster_field: str
    user_field: str
    user: User | None = None
    raw_user: dict[str, Any] = {}


class _Problem(msgspec.Struct, frozen=True):
    """A ConfigError on its way from the child."""

    problem: str
    source: str
    field: str
    way_out: str


class _Answer(msgspec.Struct, frozen=True):
    """What the child says: one of the two."""

    choice: Choice | None = None
    error: _Problem | None = None


class Place:
    """Where in a file something stands, for messages."""

    def __init__(self, source: str, field: str = "") -> None:
        self.source = source
        self.field = field

    def at(self, field: str) -> Place:
        """Return a place below this one."""
        return Place(self.source, f"{self.field}.{field}" if self.field else field)

    def error(self, problem: str, way_out: str = "") -> ConfigError:
        """Return an error that names this place."""
        return ConfigError(problem, source=self.source, field=self.field, way_out=way_out)


Reader: TypeAlias = Callable[[list[Path], str | None], Choice]
"""Reads the files and returns what they say of the context, or of the current one."""


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
        document = _read(file)
        name = wanted or document.get("current-context")
        contexts = _names(document, "contexts", Place(str(file)))
        known += contexts
        if name in contexts:
            return _Reader(file, document).choice(str(name))
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


class Reading:
    """Does what :func:`choose` does in a child process, whose memory goes with it.

    The child works from now on, so that this process can do something else until it calls for the
    choice. It does not look for modules in the working folder (-P), which may be anybody's.
    """

    def __init__(self, files: list[Path], wanted: str | None) -> None:
        self._asked = (files, wanted)
        self._child: subprocess.Popen[bytes] | None = None
        self._problem: Exception | None = None
        try:
            self._child = subprocess.Popen(  # noqa: S603 -- this very module, and no shell
                [sys.executable, "-P", "-m", __name__, wanted or "", *map(str, files)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as problem:
            self._problem = problem

    def __call__(self, files: list[Path], wanted: str | None) -> Choice:
        """Return the choice, as :func:`choose` does, when it is made. Raises ConfigError as that.

        Where no child could be had, this process reads and pays.
        """
        if (files, wanted) != self._asked:
            return apart(files, wanted)
        answer = self._answer()
        if answer is None:
            _say_in_process(self._problem)
            return choose(files, wanted)
        if answer.error is not None:
            found = answer.error
            raise ConfigError(
                found.problem, source=found.source, field=found.field, way_out=found.way_out
            )
        assert answer.choice is not None
        return answer.choice

    def _answer(self) -> _Answer | None:
        if self._child is None:
            return None
        try:
            said, _ = self._child.communicate(timeout=_CHILD_TIMEOUT_S)
            return msgspec.json.decode(said, type=_Answer)
        except (subprocess.SubprocessError, msgspec.DecodeError) as problem:
            self._problem = problem
            return None
        finally:
            self.close()

    @property
    def pid(self) -> int | None:
        """The child's process id, ``None`` once it has ended here."""
        return None if self._child is None else self._child.pid

    def close(self) -> None:
        """End the child, if nobody has called for its choice."""
        child, self._child = self._child, None
        if child is not None and child.stdout is not None:
            child.kill()
            child.wait()
            child.stdout.close()


def apart(files: list[Path], wanted: str | None) -> Choice:
    """Do what :func:`choose` does in a child process, and wait for it. Raises ConfigError."""
    return Reading(files, wanted)(files, wanted)


def _say_in_process(problem: Exception | None) -> None:
    import structlog  # noqa: PLC0415 -- a child begins before a start has imported it

    structlog.get_logger("config").warning("kubeconfig_read_in_process", problem=str(problem))


def _main(files: list[str], wanted: str) -> bytes:
    try:
        answer = _Answer(choice=choose([Path(file) for file in files], wanted or None))
    except ConfigError as error:
        found = _Problem(error.problem, error.source, error.field, error.way_out)
        answer = _Answer(error=found)
    # Dates in fields that nobody reads here come as the parser makes them.
    return msgspec.json.encode(answer, enc_hook=str)


def _read(file: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 -- only read where a kubeconfig is

    place = Place(str(file))
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise place.error(f"cannot be read: {problem}", HELP) from problem
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = getattr(problem, "problem", None) or "unreadable"
        raise place.error(f"is not YAML: {line}{what}", "correct the file") from problem
    except RecursionError as problem:
        raise place.error("is nested too deeply", "correct the file") from problem
    if not isinstance(document, dict):
        raise place.error("is not a kubeconfig: its top level is no mapping", HELP)
    return document


def _entries(document: dict[str, Any], section: str, place: Place) -> list[dict[str, Any]]:
    entries = document.get(section) or []
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in entries
    ):
        raise place.at(section).error("is not a list of named entries", "correct the file")
    return entries


def _names(document: dict[str, Any], section: str, place: Place) -> list[str]:
    return [entry["name"] for entry in _entries(document, section, place)]


class _Reader:
    """One kubeconfig file, of which one context is used."""

    def __init__(self, file: Path, document: dict[str, Any]) -> None:
        self._file = file
        self._document = document
        self._place = Place(str(file))

    def choice(self, name: str) -> Choice:
        context, context_at = self._entry("contexts", "context", name)
        if not isinstance(context.get("cluster"), str):
            raise context_at.at("cluster").error("is missing", "name a cluster of the file")
        cluster_name = context["cluster"]
        user_name = context.get("user") or ""
        cluster, cluster_at = self._entry("clusters", "cluster", cluster_name)
        user, user_at = self._entry("users", "user", user_name) if user_name else ({}, context_at)
        self._refuse(cluster, cluster_at, user, user_at)
        found = self._parse(name, context, cluster, user)
        return Choice(
            file=str(self._file),
            context=name,
            namespace=found.namespace,
            cluster=_plain(found.cluster, Cluster),
            raw_cluster=cluster,
            cluster_field=cluster_at.field,
            user=None if found.user is None else _plain(found.user, User),
            raw_user=user,
            user_field=user_at.field,
        )

    def _entry(self, section: str, key: str, name: str) -> tuple[dict[str, Any], Place]:
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
        self, cluster: dict[str, Any], cluster_at: Place, user: dict[str, Any], user_at: Place
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
        from lightkube.config.kubeconfig import KubeConfig  # noqa: PLC0415 -- dear, see the module
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


def _plain(parsed: Any, wanted: type[T]) -> T:
    """Return lightkube's struct as ours."""
    return msgspec.convert(msgspec.to_builtins(parsed), wanted)


if __name__ == "__main__":
    sys.stdout.buffer.write(_main(sys.argv[2:], sys.argv[1]))
