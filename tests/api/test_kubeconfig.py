"""Kubeconfigs read in a child process: the same answers, and nothing of the parsers stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import yaml

from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.kube.kubeconfig import Reading, apart, choose, files_of


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


def test_a_child_reads_what_this_process_would(tmp_path: Path) -> None:
    """Every field comes back, those that lightkube does not know included."""
    file = written(tmp_path)
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
    file = written(tmp_path, clusters=clusters)
    file.write_text(file.read_text().replace("at: 1", "at: 2026-01-02"))
    assert apart([file], None).raw_cluster["extensions"] == [{"at": "2026-01-02"}]


def test_an_error_in_the_child_is_the_error_here(tmp_path: Path) -> None:
    """Problem, file, field and the way out arrive as they were raised."""
    file = written(tmp_path)
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
    file = written(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    with structlog.testing.capture_logs() as logs:
        assert apart([file], None) == choose([file], None)
    assert [line["event"] for line in logs] == ["kubeconfig_read_in_process"]


def test_a_reading_begins_before_its_answer_is_called_for(tmp_path: Path) -> None:
    """What was asked at the beginning is answered by that child, anything else by another."""
    file, other = written(tmp_path), written(tmp_path / "other")
    reading = Reading([file], None)
    assert reading([other], None) == choose([other], None)
    assert reading([file], None) == choose([file], None)


def test_a_reading_nobody_calls_for_ends_with_its_close(tmp_path: Path) -> None:
    """No child is left behind; a second close is none."""
    reading = Reading([written(tmp_path)], None)
    assert reading.pid is not None
    reading.close()
    assert reading.pid is None
    reading.close()


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


def test_the_parsers_do_not_stay(tmp_path: Path) -> None:
    """A process that reads apart has neither lightkube nor an HTTP or YAML library in memory."""
    program = (
        "import sys\n"
        "from lean_sandbox.manager import serving\n"
        "from lean_sandbox.kube.config import load\n"
        "from lean_sandbox.kube.kubeconfig import apart\n"
        f"load({str(written(tmp_path))!r}, read=apart)\n"
        "dear = {'lightkube', 'yaml', 'httpx', 'httpx2', 'httpcore', 'email'}\n"
        "print(sorted(dear & {name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(  # noqa: S603 -- the text above
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
