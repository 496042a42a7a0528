"""Where credentials are looked for: a home folder, a service account, an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.kubeconfig import load
from tests.kube.certificates import Certificates

# A credential plugin as a kubeconfig names it.
V1 = "client.authentication.k8s.io/v1"
EXEC = {"apiVersion": V1, "command": "tool", "interactiveMode": "Never"}


class Home:
    """A home folder with a kubeconfig, a service account, and an environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"HOME": str(folder)}
        self.account = folder / "serviceaccount"

    def write(self, name: str = ".kube/config", **changes: Any) -> Path:
        """Write a kubeconfig with one context ``main``; changes go into cluster, user, context."""
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": changes.pop("current", "main"),
            "contexts": [
                {
                    "name": "main",
                    "context": {"cluster": "c", "user": "u"} | changes.pop("context", {}),
                }
            ],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {"server": f"http://{Path(name).name}"} | changes.pop("cluster", {}),
                }
            ],
            "users": [{"name": "u", "user": changes.pop("user", {})}],
        } | changes
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(document))
        return file

    def mount(self, certificates: Certificates) -> None:
        """Mount a service account as the kubelet does."""
        self.account.mkdir()
        (self.account / "token").write_text("secret")
        (self.account / "ca.crt").write_bytes(certificates.authority.read_bytes())
        self.environ |= {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    def load(self, kubeconfig: Path | None = None, context: str | None = None) -> Connection:
        """Load in this home."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.environ", self.environ)
            patch.setattr("lean_sandbox.kube.kubeconfig.SERVICE_ACCOUNT", self.account)
            return load(str(kubeconfig) if kubeconfig else None, context)
