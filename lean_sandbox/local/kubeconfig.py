"""Writes the kubeconfig through which kubectl and everyone else reaches the embedded server."""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from lean_sandbox.kube.errors import ConfigError, yaml_problem

NAME: Final = "lean-sandbox-local"
"""Of the cluster, the user and the context."""
_NO_KUBECONFIG: Final = "this is not a kubeconfig"
_WAY_OUT: Final = "name another file with --kubeconfig"


def kubeconfig(
    server: str, *, token: str, ca_pem: bytes | None = None, namespace: str = "default"
) -> dict[str, Any]:
    """Return a kubeconfig with one context for ``server``; ``ca_pem`` signs its certificate."""
    cluster: dict[str, Any] = {"server": server}
    if ca_pem is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    context = {"cluster": NAME, "user": NAME, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": context}],
    }


def write_kubeconfig(path: Path, content: dict[str, Any]) -> None:
    """Write a kubeconfig, readable by its owner alone, in one step.

    What a kubeconfig has at this path already stays, except for what has the names of ``content``.
    Raises ConfigError.
    """
    try:
        found = _read(path)
        if found:
            for part in ("clusters", "users", "contexts"):
                others = [one for one in found.get(part) or () if one["name"] != NAME]
                found[part] = [*others, *content[part]]
            found["current-context"] = found.get("current-context") or NAME
            data = yaml.safe_dump(found, sort_keys=False).encode()
        else:
            data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
        replace_private(path.resolve(), data)
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
        text = path.read_text(encoding="utf-8")
        found = yaml.safe_load(text) if text.strip() else {}
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(yaml_problem(error), source=str(path), way_out=_WAY_OUT) from error
    if not isinstance(found, dict) or (found and found.get("kind") != "Config"):
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
