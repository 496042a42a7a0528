"""The local clusters that run on this machine: a file for each, locked as long as it runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from lean_sandbox.errors import ConfigError


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


def folder() -> Path:
    """Return where the files are, a folder of the user's own. Raises ConfigError."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    found = state / "lean-sandbox"
    try:
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder cannot be made: {error.strerror}",
            source=str(found),
            way_out="name another place with the variable XDG_STATE_HOME",
        ) from error
    return found


@contextmanager
def listed(cluster: LocalCluster) -> Iterator[None]:
    """List a cluster while the block runs; the lock ends with the process in any case."""
    path = folder() / f"local-{cluster.port}.json"
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
    for path in sorted(folder().glob("local-*.json")):
        with suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(msgspec.json.decode(file.read(), type=LocalCluster))
    return found
