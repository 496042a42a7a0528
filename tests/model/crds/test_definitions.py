"""Laws of the generated CustomResourceDefinitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lean_sandbox.cli import main
from lean_sandbox.config.sources import EXIT_OK
from lean_sandbox.local.schema.defaults import definition_defaults
from lean_sandbox.local.schema.definition import check_definition
from tests.model.crds.definitions import definitions, write

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "manifests" / "crds"
PACKAGED = ROOT / "lean_sandbox" / "crds"
KINDS = {"Sandbox", "SandboxClaim", "SandboxTemplate", "SandboxWarmPool"}
CRDS: dict[str, Json] = {crd["spec"]["names"]["kind"]: crd for crd in definitions().values()}


def _version(kind: str) -> Json:
    versions = CRDS[kind]["spec"]["versions"]
    assert len(versions) == 1
    found: Json = versions[0]
    return found


def _schema(kind: str) -> Json:
    found: Json = _version(kind)["schema"]["openAPIV3Schema"]
    return found


def _field(kind: str, path: str) -> Json:
    schema = _schema(kind)
    for name in path.split("."):
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema


def _nodes(schema: Json) -> Iterator[Json]:
    yield schema
    for inner in (schema.get("properties") or {}).values():
        yield from _nodes(inner)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _nodes(schema[name])


def _texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_checked_in_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    """manifests/crds holds exactly the generated files, and the kustomization that lists them."""
    write(tmp_path)
    held = _texts(FOLDER)
    listing = yaml.safe_load(held.pop("Kustomization"))
    assert held == _texts(tmp_path)
    assert listing["resources"] == sorted(held)
    for name, text in held.items():
        assert yaml.load(text, yaml.CSafeLoader) == definitions()[name]


def test_the_command_prints_and_writes_the_generated_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The packaged files are those of the manifests; the command shows them as they are."""
    packaged = _texts(PACKAGED)
    assert packaged == {name: text for name, text in _texts(FOLDER).items() if ".yaml" in name}
    assert main(["crds"]) == EXIT_OK
    assert capsys.readouterr().out == "".join(text for _, text in sorted(packaged.items()))
    assert main(["crds", "--output", str(tmp_path)]) == EXIT_OK
    assert _texts(tmp_path) == packaged


def test_definitions_fit_a_client_side_apply() -> None:
    """The compact JSON stays below the limit of the last-applied annotation (256 KiB)."""
    for crd in definitions().values():
        assert len(json.dumps(crd, separators=(",", ":"))) < 200_000


def test_all_four_kinds_serve_and_store_only_v1beta1() -> None:
    """One version, served and stored; no conversion."""
    assert set(CRDS) == KINDS
    for kind, crd in CRDS.items():
        version = _version(kind)
        assert (version["name"], version["served"], version["storage"]) == ("v1beta1", True, True)
        assert "conversion" not in crd["spec"]
        assert crd["spec"]["scope"] == "Namespaced"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_definitions_are_structural_and_their_rules_compile(kind: str) -> None:
    """The embedded server accepts every definition."""
    crd = json.loads(json.dumps(CRDS[kind]))
    definition_defaults(crd)
    assert list(check_definition(crd)) == []


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_nothing_is_kept_that_the_schema_does_not_know(kind: str) -> None:
    """No schema node preserves unknown fields."""
    assert not any("x-kubernetes-preserve-unknown-fields" in node for node in _nodes(_schema(kind)))


@pytest.mark.parametrize(
    ("kind", "columns", "wide"),
    [
        ("Sandbox", ["Ready", "Reason", "Age"], ["Since", "Claim", "Pool", "Mode", "IP", "Node"]),
        ("SandboxClaim", ["Ready", "Sandbox", "Reason", "Age"], ["Pool", "IP"]),
        ("SandboxWarmPool", ["Ready", "Desired", "Age"], ["Members", "Template"]),
        ("SandboxTemplate", [], []),
    ],
)
def test_printer_columns_and_their_order(kind: str, columns: list[str], wide: list[str]) -> None:
    """`kubectl get` shows the reference's columns after the name, `-o wide` others after these."""
    shown = _version(kind).get("additionalPrinterColumns", [])
    assert [column["name"] for column in shown] == columns + wide
    assert [column.get("priority", 0) for column in shown] == [0] * len(columns) + [1] * len(wide)


def test_every_kind_has_its_short_names() -> None:
    """Short names: the singular ones, and swp for pools."""
    short = {kind: crd["spec"]["names"]["shortNames"] for kind, crd in CRDS.items()}
    assert short == {
        "Sandbox": ["sandbox"],
        "SandboxClaim": ["sandboxclaim"],
        "SandboxTemplate": ["sandboxtemplate"],
        "SandboxWarmPool": ["swp"],
    }


def test_each_kind_has_the_subresources_that_its_clients_use() -> None:
    """Status everywhere but on templates, scale on pools only."""
    assert _version("Sandbox")["subresources"] == {"status": {}}
    assert _version("SandboxClaim")["subresources"] == {"status": {}}
    assert "subresources" not in _version("SandboxTemplate")
    assert _version("SandboxWarmPool")["subresources"] == {
        "scale": {
            "labelSelectorPath": ".status.selector",
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
        },
        "status": {},
    }


@pytest.mark.parametrize(
    ("kind", "path", "default"),
    [
        ("Sandbox", "spec.operatingMode", "Running"),
        ("Sandbox", "spec.shutdownPolicy", "Retain"),
        ("SandboxClaim", "spec.lifecycle.shutdownPolicy", "Retain"),
        ("SandboxTemplate", "spec.envVarsInjectionPolicy", "Disallowed"),
        ("SandboxTemplate", "spec.volumeClaimTemplatesPolicy", "Disallowed"),
        ("SandboxTemplate", "spec.networkPolicyManagement", "Managed"),
        ("SandboxWarmPool", "spec.replicas", 1),
        ("SandboxWarmPool", "spec.updateStrategy.type", "OnReplenish"),
    ],
)
def test_defaults_of_our_own_fields(kind: str, path: str, default: object) -> None:
    """The defaults the server writes."""
    assert _field(kind, path)["default"] == default


def test_service_is_tri_state() -> None:
    """`spec.service` has no default: unset is not false."""
    assert _field("Sandbox", "spec.service").get("default") is None


def test_embedded_pod_spec_has_the_fields_of_kubernetes() -> None:
    """All PodSpec fields of Kubernetes 1.36 and those of 1.37 are there, without descriptions."""
    spec = _field("Sandbox", "spec.podTemplate.spec")
    known = set(spec["properties"])
    assert {"schedulingGroup", "hostnameOverride", "resources", "evictionResponders"} <= known
    assert len(known - {"evictionResponders"}) == 42
    assert spec["required"] == ["containers"]
    mounts = spec["properties"]["containers"]["items"]["properties"]["volumeMounts"]
    assert "bindMountOptions" in mounts["items"]["properties"]
    assert "description" not in mounts


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("containers", ["name"]),
        ("containers.[].ports", ["containerPort", "protocol"]),
        ("containers.[].env", ["name"]),
        ("containers.[].volumeMounts", ["mountPath"]),
        ("containers.[].volumeDevices", ["devicePath"]),
        ("volumes", ["name"]),
        ("imagePullSecrets", ["name"]),
        ("hostAliases", ["ip"]),
        ("topologySpreadConstraints", ["topologyKey", "whenUnsatisfiable"]),
    ],
)
def test_map_lists_of_the_embedded_pod_spec(path: str, keys: list[str]) -> None:
    """Lists that are maps, with their keys; each key is required or has a default."""
    schema = _field("Sandbox", f"spec.podTemplate.spec.{path}")
    assert schema["x-kubernetes-list-type"] == "map"
    assert schema["x-kubernetes-list-map-keys"] == keys
    items = schema["items"]
    for key in keys:
        assert key in items.get("required", ()) or "default" in items["properties"][key]


def test_every_list_of_the_embedded_pod_spec_says_its_type() -> None:
    """A list without a list type would be merged by surprise in server-side apply."""
    nodes = _nodes(_field("Sandbox", "spec.podTemplate.spec"))
    lists = [node for node in nodes if node.get("type") == "array"]
    assert len(lists) > 50
    assert all("x-kubernetes-list-type" in node for node in lists)


def test_conditions_are_atomic() -> None:
    """Conditions carry no list type: the controllers replace the array."""
    for kind in ("Sandbox", "SandboxClaim"):
        assert "x-kubernetes-list-type" not in _field(kind, "status.conditions")


def test_claim_status_has_the_service_name() -> None:
    """`status.sandbox.serviceFQDN` is part of the claim."""
    assert _field("SandboxClaim", "status.sandbox.serviceFQDN")["type"] == "string"
