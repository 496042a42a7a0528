"""The values of the chart as its schema has them; needs no helm."""

from __future__ import annotations

import json

from lean_sandbox.version import __version__
from tests.manifests.files import ROOT, documents
from tests.manifests.schema import SCHEMA, controller

CHART = ROOT / "chart"


def test_the_chart_is_of_this_version() -> None:
    """Its version is the project's, and so is the tag of the image where none is given."""
    about = documents(CHART / "Chart.yaml")[0]
    assert (about["version"], about["appVersion"]) == (__version__, __version__)


def test_the_schema_knows_every_option() -> None:
    """Every flag but those that the chart fixes is a value, by the name and of the form it has."""
    schema = json.loads(SCHEMA.read_text())
    assert schema["properties"]["controller"]["properties"] == controller(), (
        "python -m tests.manifests.schema writes it anew"
    )


def test_the_schema_knows_the_names_of_the_reference() -> None:
    """A file of values for the reference's chart of v1.0 is taken."""
    flags = {"leaderElect", "kubeApiQps", "pprofBlockProfileRate", "enableRESTClientMetrics"}
    flags |= {"apiConnections", "sandboxWarmPoolUnschedulableRecheckInterval", "extraArgs"}
    assert flags <= controller().keys()
    values = documents(CHART / "values.yaml")[0]
    schema = json.loads(SCHEMA.read_text())["properties"]
    assert values.keys() == schema.keys() - {"global"}
