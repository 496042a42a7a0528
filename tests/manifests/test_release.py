"""The manifests of a release, one file each: what they hold, and that a server takes them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.controlplane.plugin import REAL
from tests.manifests.conftest import Run
from tests.manifests.files import ROOT, by_name, documents
from tests.support.patience import PATIENCE_S

pytestmark = REAL

IMAGE = ("registry.example.com:5000/team/lean-sandbox", "v1")
DEFINITIONS = sorted((ROOT / "crds").glob("*.yaml"))
FILES = {
    "crds.yaml": DEFINITIONS,
    "sandbox.yaml": [DEFINITIONS[0], ROOT / "overlays/drop-in"],
    "sandbox-with-extensions.yaml": [*DEFINITIONS, ROOT / "overlays/drop-in-extensions"],
}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the files for an image, and return their folder."""
    folder = tmp_path_factory.mktemp("dist")
    command = [str(ROOT.parent / ".ci/tasks"), "manifests", ":".join(IMAGE), str(folder)]
    subprocess.run(command, check=True, timeout=PATIENCE_S)  # noqa: S603 -- a task of the project
    return folder


@pytest.mark.parametrize("name", FILES)
def test_a_file_holds_what_kustomize_makes_of_its_parts(
    kubectl: Run, dist: Path, tmp_path: Path, name: str
) -> None:
    """Definitions first, then an overlay with the image in its place, and no object twice."""
    for path in DEFINITIONS:
        (tmp_path / path.name).write_text(path.read_text())
    parts = [
        path.name if path.is_file() else os.path.relpath(path, tmp_path) for path in FILES[name]
    ]
    images = [{"name": "lean-sandbox", "newName": IMAGE[0], "newTag": IMAGE[1]}]
    body = {"resources": parts, "images": images}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(body))
    wanted = yaml.safe_load_all(kubectl("kustomize", tmp_path))
    found = documents(dist / name)
    assert by_name(found) == by_name(list(wanted))
    assert found[0]["kind"] == "CustomResourceDefinition"


@pytest.mark.parametrize("name", FILES)
def test_a_server_takes_a_file_twice_and_the_second_changes_nothing(
    kubectl: Run, dist: Path, name: str
) -> None:
    """One command installs, and the same one again is no change."""
    apply = ("apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", dist / name)
    kubectl(*apply)
    versions = ("get", "-f", dist / name, "-o", "jsonpath={.items[*].metadata.resourceVersion}")
    first = kubectl(*versions)
    kubectl(*apply)
    assert first
    assert kubectl(*versions) == first


def test_the_image_has_to_be_said() -> None:
    """Without one the task says what it wants."""
    done = subprocess.run(  # noqa: S603 -- a task of the project
        [ROOT.parent / ".ci/tasks", "manifests"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "IMAGE" in done.stderr
