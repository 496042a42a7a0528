"""Files of local clusters: kubeconfigs, the list of those that run, manifests to begin with."""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from lean_sandbox.errors import ConfigError, yaml_problem

NAME: Final = "lean-sandbox-local"
"""Of the cluster, the user and the context."""
_NO_KUBECONFIG: Final = "this is not a kubeconfig"
_WAY_OUT: Final = "name another file with --kubeconfig"
OTHER_PLACE: Final = "name another place with the variable XDG_STATE_HOME"
"""The way out where the list of clusters and their logs cannot be written."""


def write_kubeconfig(
    path: Path, server: str, *, token: str, ca_pem: bytes | None = None, namespace: str = "default"
) -> None:
    """Write a kubeconfig, readable by its owner alone, in one step.

    ``ca_pem`` is the authority that signed the server's certificate. What a kubeconfig has at this
    path already stays, except for what is called ``NAME``. Raises ConfigError.
    """
    cluster = {"server": server}
    if ca_pem is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    own: dict[str, dict[str, Any]] = {
        "clusters": {"cluster": cluster},
        "users": {"user": {"token": token}},
        "contexts": {"context": {"cluster": NAME, "user": NAME, "namespace": namespace}},
    }
    try:
        found = _read_kubeconfig(path)
        for part, entry in own.items():
            others = [one for one in found.get(part) or () if one["name"] != NAME]
            found[part] = [*others, {"name": NAME, **entry}]
        found["current-context"] = found.get("current-context") or NAME
        replace_private(_real(path), yaml.safe_dump(found, sort_keys=False).encode())
    except (KeyError, TypeError) as error:
        raise ConfigError(_NO_KUBECONFIG, source=str(path), way_out=_WAY_OUT) from error
    except OSError as error:
        problem = f"the kubeconfig cannot be written: {error.strerror}"
        raise ConfigError(problem, source=str(path), way_out=_WAY_OUT) from error


def restorer_of(path: Path) -> Callable[[], None]:
    """Return a function that restores a file as it is now, or removes one that is not there yet.

    With a new file go the folders that were made for it. What cannot be removed, such as a folder
    with other files, stays. Raises ConfigError, and what is returned OSError.
    """
    place = _real(path)
    missing = [folder for folder in place.parents if not folder.exists()]
    try:
        old = place.read_bytes() if place.is_file() else None
    except OSError as error:
        problem = f"the kubeconfig cannot be read: {error.strerror}"
        raise ConfigError(problem, source=str(path), way_out=_WAY_OUT) from error

    def restore() -> None:
        if old is not None:
            replace_private(place, old)
            return
        with suppress(OSError):
            place.unlink()
            for folder in missing:
                folder.rmdir()

    return restore


def _real(path: Path) -> Path:
    # Path.resolve raises before Python 3.13 for a link that leads to itself.
    return Path(os.path.realpath(path))


def current_context(path: Path) -> str:
    """Return the context that clients use without being told another."""
    return str(_read_kubeconfig(path).get("current-context", ""))


def _read_kubeconfig(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(yaml_problem(error), source=str(path), way_out=_WAY_OUT) from error
    if found in (None, {}):
        return {"apiVersion": "v1", "kind": "Config"}
    if not isinstance(found, dict) or found.get("kind") != "Config":
        raise ConfigError(_NO_KUBECONFIG, source=str(path), way_out=_WAY_OUT)
    return found


def replace_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, in one step; a crash leaves the old one.

    The draft has a name that nobody can guess and must not exist: in a folder that others may write
    to, a file or link prepared by them would keep their mode. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


# ------------------------------------------------------------------ clusters that run


class LocalCluster(msgspec.Struct, frozen=True):
    """One local cluster that runs."""

    pid: int
    port: int
    url: str
    kubeconfig: str
    nodes: int
    has_controller: bool
    log: str = ""
    """Where the output goes of a cluster in the background."""
    metrics: str = ""
    """Where the controller serves them; empty: nowhere."""
    state: str = ""
    """The file that keeps it over a restart; empty: none."""


def _folder() -> Path:
    """Return where the files are, a folder of the user's own. Raises ConfigError."""
    named = os.environ.get("XDG_STATE_HOME")
    try:
        state = Path(named) if named else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ConfigError("this user has no home folder", way_out=OTHER_PLACE) from error
    return state / "lean-sandbox"


def make_folder() -> Path:
    """Make the folder of these files where it is missing, and return it. Raises ConfigError."""
    found = _folder()
    try:
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = f"the folder cannot be made: {error.strerror}"
        raise ConfigError(problem, source=str(found), way_out=OTHER_PLACE) from error
    return found


def open_log(path: Path) -> int:
    """Open an empty file for output that only its owner can read. Raises ConfigError."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        problem = f"the log cannot be written: {error.strerror}"
        raise ConfigError(problem, source=str(path), way_out=OTHER_PLACE) from error


@contextmanager
def listed(cluster: LocalCluster) -> Iterator[None]:
    """List a cluster while the block runs; the lock ends with the process in any case."""
    path = make_folder() / f"local-{cluster.port}.json"
    draft = path.with_suffix(f".{cluster.pid}")
    with draft.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(msgspec.json.encode(cluster))
        file.flush()
        draft.replace(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def clusters() -> list[LocalCluster]:
    """Return the clusters that run; the file of one that was killed is not locked."""
    found = []
    for path in sorted(_folder().glob("local-*.json")):
        with suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(msgspec.json.decode(file.read(), type=LocalCluster))
    return found


# ------------------------------------------------------------------ manifests to begin with


def _manifest(name: str) -> str:
    return (files("lean_sandbox.local") / "data" / f"{name}.yaml").read_text(encoding="utf-8")


SANDBOX: Final = _manifest("sandbox")
TEMPLATE: Final = _manifest("template")
WARM_POOL: Final = _manifest("pool")
CLAIM: Final = _manifest("claim")

EXAMPLES: Final = {"sandbox": SANDBOX, "pool": f"{TEMPLATE}---\n{WARM_POOL}", "claim": CLAIM}
"""What ``lean-sandbox local example`` prints, by name."""
