"""Writes the kubeconfig through which kubectl and everyone else reaches the embedded server."""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path
from typing import Any

import msgspec

_NAME = "lean-sandbox-local"


def kubeconfig(
    server: str, *, token: str, ca_pem: bytes | None = None, namespace: str = "default"
) -> dict[str, Any]:
    """Return a kubeconfig with one context for ``server``; ``ca_pem`` signs its certificate."""
    cluster: dict[str, Any] = {"server": server}
    if ca_pem is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    context = {"cluster": _NAME, "user": _NAME, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _NAME,
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": {"token": token}}],
        "contexts": [{"name": _NAME, "context": context}],
    }


def write_private(path: Path, content: dict[str, Any]) -> None:
    """Write ``content`` as JSON, which is YAML too, readable by its owner alone, in one step.

    Raises OSError.
    """
    replace_private(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


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
