"""What the start of a controller does not pay for: seen in what it has imported, not by a clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lean_sandbox.version import __version__
from tests.support.patience import PATIENCE_S

# What ``lean-sandbox run`` imports before it connects; rich is kept out as the command does.
_START = (
    "import sys; sys.modules['rich'] = None\nimport lean_sandbox.cli, lean_sandbox.manager.server\n"
)


def printed(program: str) -> set[str]:
    """Return the words that a program prints behind the imports of a start."""
    ended = subprocess.run(  # noqa: S603 -- our own programs
        [sys.executable, "-c", _START + program],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return set(ended.stdout.split())


def test_a_start_imports_nothing_that_it_does_not_need() -> None:
    """Neither other commands and their libraries nor what only some settings ask for."""
    loaded = printed("print(*sys.modules)")
    assert "lean_sandbox.controllers.claim.controller" in loaded
    rooms = {name for name in loaded if name.startswith("lean_sandbox.")}
    others = {"bench", "client", "demo", "local", "trace"}
    assert {name for name in rooms if name.split(".")[1] in others} == set()
    optional = {"leaderelection", "lease", "preflight"}
    assert rooms & {f"lean_sandbox.manager.{name}" for name in optional} == set()
    assert (
        loaded
        & {
            *("argparse", "filters.replay", "tempfile", "lzma", "secrets", "hashlib"),
            *("prometheus_client", "http.server", "wsgiref", "socketserver", "email.message"),
            *("encodings.idna", "stringprep", "h11", "gzip"),
            *("lean_sandbox.http.tls", "lean_sandbox.http.pprof"),
            *("lightkube", "yaml", "httpx2", "aiohttp", "pygments", "pydantic", "opentelemetry"),
        }
        == set()
    )


def test_the_package_runs_as_its_command_does() -> None:
    """``python -m lean_sandbox`` is ``lean-sandbox``: same words, same exit code."""
    program = [sys.executable, "-m", "lean_sandbox"]
    told = subprocess.run([*program, "version"], capture_output=True, text=True, check=True)  # noqa: S603
    assert told.stdout.startswith(f"lean-sandbox, version v{__version__} (revision: ")
    assert subprocess.run([*program, "nonsense"], capture_output=True, check=False).returncode == 2  # noqa: S603


def test_a_kubeconfig_costs_the_yaml_parser_alone(tmp_path: Path) -> None:
    """The controller reads it itself: nothing of lightkube or of its HTTP library is imported."""
    file = tmp_path / "config"
    file.write_text(
        "current-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1'}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
    )
    loaded = printed(
        f"from lean_sandbox.kube.kubeconfig import load\nload({str(file)!r})\nprint(*sys.modules)\n"
    )
    assert "yaml" in loaded
    assert loaded & {"lightkube", "httpx", "httpx2", "httpcore", "email"} == set()


def test_the_records_of_a_start_are_structs() -> None:
    """Each dataclass compiles its methods when it is defined, at ten times a Struct's price.

    Settings are made of the metadata that only fields of dataclasses have.
    """
    found = printed(
        "import dataclasses\n"
        "for name, module in list(sys.modules.items()):\n"
        "    for made in vars(module).values() if name.startswith('lean_sandbox') else ():\n"
        "        if isinstance(made, type) and dataclasses.is_dataclass(made):\n"
        "            if made.__module__ == name: print(f'{name}.{made.__name__}')\n"
    )
    assert found <= {"lean_sandbox.config.options.Settings"}
    assert "lean_sandbox.config.options.Settings" in found
