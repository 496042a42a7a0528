"""Which kubeconfigs are read, and what is decoded of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from lean_sandbox.kube.kubeconfig import choose, files_of


def written(folder: Path, **changes: Any) -> Path:
    """Write a kubeconfig with one context."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://api:6443", "tls-server-name": "kube"}}
        ],
        "users": [
            {
                "name": "u",
                "user": {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "command": "login",
                        "args": ["--quiet"],
                        "env": [{"name": "A", "value": "b"}],
                        "interactiveMode": "Never",
                    }
                },
            }
        ],
    }
    folder.mkdir(exist_ok=True)
    file = folder / "config"
    file.write_text(yaml.safe_dump(document | changes))
    return file


def test_what_the_context_names_is_read(tmp_path: Path) -> None:
    """Cluster, user and namespace of the current context, decoded into their fields."""
    here = choose([written(tmp_path)], None)
    assert (here.context, here.namespace, here.cluster.server) == (
        "main",
        "team",
        "https://api:6443",
    )
    assert here.user is not None
    assert here.user.exec is not None
    assert here.user.exec.args == ("--quiet",)
    assert here.cluster.tls_server_name == "kube"


def test_a_date_in_the_file_is_no_obstacle(tmp_path: Path) -> None:
    """YAML makes dates of some texts; a plugin is told them as texts."""
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"at": "then"}}
    clusters = [{"name": "c", "cluster": {"server": "https://api", "extensions": [extension]}}]
    file = written(tmp_path, clusters=clusters)
    file.write_text(file.read_text().replace("at: then", "at: 2026-01-02"))
    extensions = choose([file], None).cluster.extensions
    assert b'"2026-01-02"' in msgspec.json.encode(extensions)


@pytest.mark.parametrize("what", ["flag", "list", "home", "pod", "pod but a context", "nothing"])
def test_the_files_are_found_where_kubectl_finds_them(tmp_path: Path, what: str) -> None:
    """The flag, then KUBECONFIG, then the service account unless a context is named, then home."""
    home, account = tmp_path / "home", tmp_path / "account"
    default = home / ".kube" / "config"
    default.parent.mkdir(parents=True)
    account.mkdir()
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    if what != "nothing":
        default.touch()
    if what.startswith("pod"):
        (account / "token").touch()
    if what in ("flag", "list"):
        environ["KUBECONFIG"] = os.pathsep.join(("", "/a", "/b"))
    found = files_of(
        "/flag" if what == "flag" else None,
        "other" if what == "pod but a context" else None,
        environ=environ,
        home=home,
        service_account=account,
    )
    wanted = {
        "flag": [Path("/flag")],
        "list": [Path("/a"), Path("/b")],
        "home": [default],
        "pod but a context": [default],
    }
    assert found == wanted.get(what, [])
