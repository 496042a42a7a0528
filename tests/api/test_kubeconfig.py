"""Kubeconfigs read without a library or in a child: the same answers, and no parser stays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import yaml

from lean_sandbox.api import kubeconfig
from lean_sandbox.api.errors import ConfigError
from lean_sandbox.api.kubeconfig import apart, choose, choose_plainly


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
    file = folder / "config"
    file.write_text(yaml.safe_dump(document | changes))
    return file


def needing_a_library(folder: Path, **changes: Any) -> Path:
    """Write a kubeconfig that takes a YAML library to read."""
    file = written(folder, **changes)
    file.write_text(file.read_text() + "preferences: {} # none\n")
    assert choose_plainly([file], None) is None
    return file


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no child be started."""

    def refuse(*_: object) -> None:
        pytest.fail("a child was asked")

    monkeypatch.setattr(kubeconfig, "_ask_child", refuse)


@pytest.mark.usefixtures("no_child")
@pytest.mark.parametrize(
    "user",
    [
        {"token": "abc.def-ghi_j"},
        {"client-certificate-data": "LS0tLS1CRUdJTg==", "client-key-data": "LS0tLS1CRUdJTg=="},
        {"client-certificate": "/home/me/.minikube/client.crt", "client-key": "client.key"},
        {"tokenFile": "token"},
        {"username": "me", "password": "secret"},
        {},
        {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1beta1",
                "command": "aws",
                "args": ["--region", "eu-west-1", "eks", "get-token", "--output", "json"],
                "env": None,
                "interactiveMode": "IfAvailable",
                "provideClusterInfo": False,
            }
        },
    ],
)
@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps], ids=["yaml", "json"])
def test_what_programs_write_takes_no_child(
    tmp_path: Path, user: dict[str, Any], dump: Callable[[Any], str]
) -> None:
    """Ordinary kubeconfigs, as YAML and as JSON, are read here, as lightkube reads them."""
    cluster = {
        "server": "https://127.0.0.1:6443",
        "certificate-authority-data": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==",
        "insecure-skip-tls-verify": False,
        "extensions": [
            {
                "name": "cluster_info",
                "extension": {
                    "last-update": "Mon, 02 Jan 2023 12:00:00 UTC",
                    "provider": "minikube.sigs.k8s.io",
                },
            }
        ],
    }
    file = written(
        tmp_path,
        preferences={},
        clusters=[{"name": "c", "cluster": cluster}],
        users=[{"name": "u", "user": user}],
    )
    file.write_text(dump(yaml.safe_load(file.read_text())))
    assert apart([file], None) == choose([file], None)


@pytest.mark.usefixtures("no_child")
def test_kubectls_own_file_takes_no_child(tmp_path: Path) -> None:
    """Lists as far to the left as their keys, as ``kubectl config`` writes them."""
    file = tmp_path / "config"
    file.write_text(
        """apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTg==
    server: https://10.0.0.1:6443
  name: kind-kind
contexts:
- context:
    cluster: kind-kind
    user: kind-kind
  name: kind-kind
current-context: kind-kind
kind: Config
preferences: {}
users:
- name: kind-kind
  user:
    client-certificate-data: LS0tLS1CRUdJTg==
    client-key-data: LS0tLS1CRUdJTg==
"""
    )
    assert apart([file], None) == choose([file], None)


def test_a_child_reads_what_this_process_would(tmp_path: Path) -> None:
    """Every field comes back, those that lightkube does not know included."""
    file = needing_a_library(tmp_path)
    here = choose([file], None)
    assert apart([file], None) == here
    assert (here.context, here.namespace, here.cluster.server) == (
        "main",
        "team",
        "https://api:6443",
    )
    assert here.user is not None
    assert here.user.exec is not None
    assert here.user.exec.args == ("--quiet",)
    assert here.raw_cluster["tls-server-name"] == "kube"


def test_a_date_in_the_file_is_no_obstacle(tmp_path: Path) -> None:
    """YAML makes dates of some texts; they are passed on as texts."""
    clusters = [{"name": "c", "cluster": {"server": "https://api", "extensions": [{"at": 1}]}}]
    file = needing_a_library(tmp_path, clusters=clusters)
    file.write_text(file.read_text().replace("at: 1", "at: 2026-01-02"))
    assert apart([file], None).raw_cluster["extensions"] == [{"at": "2026-01-02"}]


def test_an_error_in_the_child_is_the_error_here(tmp_path: Path) -> None:
    """Problem, file, field and the way out arrive as they were raised."""
    file = needing_a_library(tmp_path)
    with pytest.raises(ConfigError) as here:
        choose([file], "other")
    with pytest.raises(ConfigError) as there:
        apart([file], "other")
    assert vars(there.value) == vars(here.value)
    assert str(there.value) == str(here.value)


def test_without_a_child_this_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no interpreter can be started the answer is the same, and the log says so."""
    file = needing_a_library(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    with structlog.testing.capture_logs() as logs:
        assert apart([file], None) == choose([file], None)
    assert [line["event"] for line in logs] == ["kubeconfig_read_in_process"]


def test_the_parsers_do_not_stay(tmp_path: Path) -> None:
    """A process that reads apart has neither lightkube nor an HTTP or YAML library in memory."""
    program = (
        "import sys\n"
        "from lean_sandbox import serving\n"
        "from lean_sandbox.api.config import load\n"
        "from lean_sandbox.api.kubeconfig import apart\n"
        f"load({str(needing_a_library(tmp_path))!r}, read=apart)\n"
        "dear = {'lightkube', 'yaml', 'httpx', 'httpx2', 'httpcore', 'email'}\n"
        "print(sorted(dear & {name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(  # noqa: S603 -- the text above
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
