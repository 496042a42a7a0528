"""Reads the manifests as they lie there, without rendering them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import effective, scan

__all__ = [
    "KUSTOMIZATIONS",
    "ROOT",
    "Grant",
    "by_name",
    "containers",
    "documents",
    "files",
    "grants",
    "kustomizations",
    "named",
    "objects",
    "patches",
]

Json = dict[str, Any]
Grant = tuple[str, str, str]

ROOT = Path(__file__).resolve().parents[2] / "manifests"
# Without an ending where `kubectl apply -f FOLDER`, which takes every YAML file for an object,
# has to work as well.
KUSTOMIZATIONS = ("kustomization.yaml", "Kustomization")
_CONTAINERS = ("agent-sandbox-controller", "lean-sandbox", "lean-sandbox-companions")


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None]


def files() -> list[Path]:
    """Return every YAML file but the kustomizations and the chart, whose templates are none yet."""
    found = sorted(ROOT.rglob("*.yaml"))
    plain = [one for one in found if one.name not in KUSTOMIZATIONS and "chart" not in one.parts]
    assert plain, "no manifest is left"
    return plain


def kustomizations() -> dict[Path, Json]:
    """Return every kustomization by its folder."""
    paths = sorted(path for path in ROOT.rglob("*") if path.name in KUSTOMIZATIONS)
    return {path.parent: documents(path)[0] for path in paths}


def objects(*folders: str) -> list[Json]:
    """Return the objects that the kustomizations of folders list themselves."""
    found: list[Json] = []
    for folder in folders:
        for name in kustomizations()[ROOT / folder].get("resources", []):
            path = ROOT / folder / name
            found += documents(path) if path.is_file() else []
    return found


def patches() -> Iterator[tuple[Path, Json]]:
    """Yield the file of each patch with what its kustomization says of it."""
    for folder, body in kustomizations().items():
        for patch in body.get("patches", []):
            yield folder / patch["path"], patch


def containers() -> Iterator[tuple[Path, Json]]:
    """Yield every container of this program: those of objects, patches and parts of patches."""
    for path in files():
        for document in documents(path) if "crds" not in path.parts else []:
            if isinstance(document, list):
                values = [step.get("value") for step in document]
                yield from ((path, one) for one in values if isinstance(one, dict))
            elif document.get("kind") == "Deployment":
                spec = document["spec"].get("template", {}).get("spec", {})
                for one in spec.get("containers", []):
                    if one["name"] in _CONTAINERS:
                        yield path, one


def named(found: list[Json], kind: str, name: str = "agent-sandbox-controller") -> Json:
    """Return the one object of a kind and name."""
    (one,) = [body for body in found if body["kind"] == kind and body["metadata"]["name"] == name]
    return one


def by_name(objects: list[Json]) -> dict[tuple[str, str, str], Json]:
    """Return objects by kind, namespace and name; none stands twice."""
    found = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
        for one in objects
    }
    assert len(found) == len(objects)
    return found


def grants(rules: list[Mapping[str, Any]]) -> list[Grant]:
    """Return each right of a role by itself: group, resource with subresource, verb."""
    return [
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def options(arguments: list[str], environment: Mapping[str, str] | None = None) -> Settings:
    """Return what the program makes of the arguments of a container, variables filled in."""
    values = {"$(POD_NAMESPACE)": "ns", "$(POD_INDEX)": "3"}
    words = list(arguments)
    for variable, value in values.items():
        words = [one.replace(variable, value) for one in words]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lean_sandbox.config.sources.MOUNTED", ROOT / "nowhere")
        found = effective(scan(words), environment or {})
    return found.settings
