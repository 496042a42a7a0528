"""Writes the kubeconfig through which kubectl and everyone else reaches the embedded server."""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path
from typing import Any, Final

import yaml

from lean_sandbox.errors import ConfigError, yaml_problem

NAME: Final = "lean-sandbox-local"
"""Of the cluster, the user and the context."""
_NO_KUBECONFIG: Final = "this is not a kubeconfig"
_WAY_OUT: Final = "name another file with --kubeconfig"


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
        found = _read(path)
        for part, entry in own.items():
            others = [one for one in found.get(part) or () if one["name"] != NAME]
            found[part] = [*others, {"name": NAME, **entry}]
        found["current-context"] = found.get("current-context") or NAME
        replace_private(path.resolve(), yaml.safe_dump(found, sort_keys=False).encode())
    except (KeyError, TypeError) as error:
        raise ConfigError(_NO_KUBECONFIG, source=str(path), way_out=_WAY_OUT) from error
    except OSError as error:
        problem = f"the kubeconfig cannot be written: {error.strerror}"
        raise ConfigError(problem, source=str(path), way_out=_WAY_OUT) from error


def current_context(path: Path) -> str:
    """Return the context that clients use without being told another."""
    return str(_read(path).get("current-context", ""))


def _read(path: Path) -> dict[str, Any]:
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
