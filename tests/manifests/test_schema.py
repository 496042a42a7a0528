"""The values of the chart as its schema has them; needs no helm."""

from __future__ import annotations

import json
import re

import pytest

from lean_sandbox.version import __version__
from tests.manifests.files import ROOT, documents
from tests.manifests.schema import SCHEMA, controller, values
from tests.manifests.values import FREE, HOSTILE, NAMES, TEXTS

CHART = ROOT / "chart"


def test_the_chart_is_of_this_version() -> None:
    """Its version is the project's, and so is the tag of the image where none is given."""
    about = documents(CHART / "Chart.yaml")[0]
    assert (about["version"], about["appVersion"]) == (__version__, __version__)


def test_the_schema_knows_every_option() -> None:
    """Every flag but those that the chart fixes is a value, by the name and of the form it has."""
    schema = json.loads(SCHEMA.read_text())
    assert schema["properties"]["controller"] == controller(), (
        "python -m tests.manifests.schema writes it anew"
    )


def test_the_schema_knows_the_names_of_the_reference() -> None:
    """A file of values for the reference's chart of v1.0 is taken."""
    flags = {"leaderElect", "kubeApiQps", "pprofBlockProfileRate", "enableRESTClientMetrics"}
    flags |= {"apiConnections", "sandboxWarmPoolUnschedulableRecheckInterval", "extraArgs"}
    assert flags <= values().keys()
    ours = documents(CHART / "values.yaml")[0]
    schema = json.loads(SCHEMA.read_text())["properties"]
    assert ours.keys() == schema.keys() - {"global"}


def test_every_text_is_checked_or_quoted_as_a_whole() -> None:
    """But for options of the program, which reads them itself, a text has a pattern."""
    free = {path for path, said in TEXTS.items() if "pattern" not in said}
    assert {path for path in free if not path.startswith("controller.")} == FREE
    names = {"controller.leaderElectionNamespace", "controller.leaderElectionLease"}
    assert names.isdisjoint(free)


@pytest.mark.parametrize("path", NAMES)
def test_nothing_that_is_more_than_a_name_is_taken_for_one(path: str) -> None:
    """Neither what would begin another line or field nor what no object can be called."""
    pattern = TEXTS[path]["pattern"].removesuffix("$") + r"\Z"
    assert not [one for one in HOSTILE if re.match(pattern, one, re.ASCII)]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("namespace.name", ["", "agent-sandbox-system", "7", "a" * 63]),
        ("service.name", ["", "metrics", "a-1", "a" * 63]),
        (
            "image.repository",
            [
                *("lean-sandbox", "registry.example.com:5000/team/lean_sandbox", "localhost/x"),
                *("[fd00::1]:5000/x", "registry.example.com/a/b.c/d--e", "r.example.com/x@sha256"),
            ],
        ),
        ("image.tag", ["", "0.1.0", "V1_x", "0.1.0@sha256:" + 64 * "a", 64 * "a"]),
        ("controller.leaderElectionLease", ["", "a3317529.agent-sandbox.x-k8s.io", "a"]),
        ("controller.companions", ["", "idle", "autosize, defaults,idle"]),
        ("imagePullSecrets.name", ["pull", "my.registry"]),
        ("metrics.serviceMonitor.interval", ["30s", "1h30m", "500ms", ""]),
    ],
)
def test_names_are_taken(path: str, names: list[str]) -> None:
    """With ports, digests and dots where these may have them."""
    assert [one for one in names if not re.search(TEXTS[path]["pattern"], one, re.ASCII)] == []
