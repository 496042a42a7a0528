"""``lean_sandbox.client``: it says what the definitions say, and its page does what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from kubernetes.config import kube_config
from lightkube import Client, KubeConfig
from lightkube.core.resource import api_info
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.types import PatchType
from msgspec import inspect

from lean_sandbox.client import (
    KINDS,
    Condition,
    PodTemplate,
    Reference,
    Sandbox,
    SandboxSpec,
    SandboxStatus,
    SandboxTemplate,
    SandboxTemplateSpec,
    SandboxWarmPool,
    SandboxWarmPoolSpec,
    condition,
    is_ready,
)
from tests.client.cluster import Cluster

Json = dict[str, Any]
_ROOT = Path(__file__).parents[2]
_POD = PodTemplate(spec=PodSpec(containers=[Container(name="main", image="busybox")]))
_TYPES: dict[type[inspect.Type], Json] = {
    inspect.StrType: {"type": "string"},
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer"},
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
}


def definition(kind: type[Any]) -> Json:
    """Return the definition of a kind, as it is installed."""
    info = api_info(kind)
    file = f"{info.resource.group}_{info.plural}.yaml"
    found: Json = yaml.safe_load((_ROOT / "manifests" / "crds" / file).read_text(encoding="utf-8"))
    return found


def differences(type_: inspect.Type, schema: Json, where: str) -> Iterator[str]:
    """Yield how a type and the schema of what it decodes differ."""
    if isinstance(type_, inspect.UnionType):
        type_ = next(one for one in type_.types if not isinstance(one, inspect.NoneType))
    if isinstance(type_, inspect.LiteralType):
        if set(type_.values) != set(schema.get("enum", ())):
            yield f"{where}: {type_.values} is not {schema.get('enum')}"
    elif isinstance(type_, inspect.ListType):
        yield from differences(type_.item_type, schema.get("items", {}), f"{where}[]")
    elif isinstance(type_, inspect.DictType):
        yield from differences(type_.value_type, schema["additionalProperties"], f"{where}{{}}")
    elif isinstance(type_, inspect.StructType):
        yield from _field_differences(type_, schema, where)
    elif any(schema.get(key) != value for key, value in _TYPES[type(type_)].items()):
        yield f"{where}: {type_} is not {schema}"


def _field_differences(type_: inspect.StructType, schema: Json, where: str) -> Iterator[str]:
    fields = {field.encode_name: field for field in type_.fields}
    if missing := set(schema["properties"]) - set(fields):
        yield f"{where} has no {sorted(missing)}"
    if type_.cls.__module__ != "lean_sandbox.client":
        return  # Of lightkube's own models only the names are held against the definitions.
    if more := set(fields) - set(schema["properties"]):
        yield f"{where} has {sorted(more)}, which the definition has not"
    required = {name for name, field in fields.items() if field.required}
    if required != set(schema.get("required", ())):
        yield f"{where} requires {sorted(required)}, not {schema.get('required')}"
    for name, field in fields.items():
        if name in schema["properties"] and (where, name) != ("", "metadata"):
            yield from differences(field.type, schema["properties"][name], f"{where}.{name}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_every_field_is_that_of_the_definition(kind: type[Any]) -> None:
    """Names, types, permitted values, and what may not be left out: none more and none less."""
    (version,) = definition(kind)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    found = set(differences(inspect.type_info(kind), schema, ""))
    if kind is SandboxTemplate:
        # The definition leaves room for a status that nobody writes.
        found.discard(" has no ['status']")
    assert found == set()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_a_kind_is_found_where_its_definition_serves_it(kind: type[Any]) -> None:
    """Group, version, plural and kind, and each subresource that there is."""
    spec = definition(kind)["spec"]
    (version,) = spec["versions"]
    info = api_info(kind)
    assert (info.resource.group, info.plural) == (spec["group"], spec["names"]["plural"])
    assert (info.resource.version, info.resource.kind) == (version["name"], kind.__name__)
    for subresource in ("status", "scale"):
        name = subresource.capitalize()
        assert hasattr(kind, name) is (subresource in version.get("subresources", {}))
        if hasattr(kind, name):
            assert api_info(getattr(kind, name)).action == subresource


def test_what_is_left_out_is_absent_and_what_comes_back_is_the_same() -> None:
    """A request has the fields that were set, and its kind; decoding gives the object again."""
    sandbox = Sandbox(metadata=ObjectMeta(name="s"), spec=SandboxSpec(podTemplate=_POD))
    sent = msgspec.json.decode(msgspec.json.encode(sandbox))
    assert sent == {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "s"},
        "spec": {"podTemplate": {"spec": {"containers": [{"image": "busybox", "name": "main"}]}}},
    }
    assert Sandbox.from_dict(sent) == sandbox


def test_a_condition_is_found_by_its_type() -> None:
    """None without a status, and without one of that type; Ready is what is usually asked for."""
    sandbox = Sandbox(spec=SandboxSpec(podTemplate=_POD))
    assert condition(sandbox) is None
    at = datetime(2026, 1, 1, tzinfo=UTC)
    ready = Condition(type="Ready", status="True", reason="r", message="", lastTransitionTime=at)
    sandbox.status = SandboxStatus(conditions=[ready])
    assert (condition(sandbox), condition(sandbox, "Suspended")) == (ready, None)
    assert is_ready(sandbox)
    sandbox.metadata = ObjectMeta(name="s", generation=2)
    assert is_ready(sandbox)
    ready.observedGeneration = 1
    assert not is_ready(sandbox)
    ready.observedGeneration = 2
    assert is_ready(sandbox)
    ready.status = "False"
    assert not is_ready(sandbox)


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    """Give lightkube's client in a namespace of the test's own."""
    config = KubeConfig.from_file(cluster.kubeconfig)
    made = Client(config=config, namespace=cluster.room().name)
    yield made
    made.close()


def test_status_and_scale_are_read_and_written_through_their_paths(client: Client) -> None:
    """A pool is resized by its scale; a status can be read and patched alone."""
    client.create(
        SandboxTemplate(metadata=ObjectMeta(name="t"), spec=SandboxTemplateSpec(podTemplate=_POD))
    )
    spec = SandboxWarmPoolSpec(sandboxTemplateRef=Reference(name="t"), replicas=1)
    client.create(SandboxWarmPool(metadata=ObjectMeta(name="p"), spec=spec))
    scale = client.get(SandboxWarmPool.Scale, "p")
    assert scale.spec is not None
    assert (scale.kind, scale.spec.replicas) == ("Scale", 1)
    resized = {"spec": {"replicas": 2}}
    client.patch(SandboxWarmPool.Scale, "p", resized, patch_type=PatchType.MERGE)
    assert client.get(SandboxWarmPool, "p").spec.replicas == 2
    sandbox = Sandbox(metadata=ObjectMeta(name="s"), spec=SandboxSpec(podTemplate=_POD))
    client.create(sandbox)
    for _, seen in client.watch(Sandbox, fields={"metadata.name": "s"}):
        if is_ready(seen):
            break
    read = client.get(Sandbox.Status, "s")
    assert is_ready(read)
    moved = {"status": {"nodeName": "elsewhere"}}
    patched = client.patch(Sandbox.Status, "s", moved, patch_type=PatchType.MERGE)
    assert patched.status is not None
    assert patched.status.nodeName == "elsewhere"
    suspended = {"spec": {"operatingMode": "Suspended"}}
    changed = client.patch(Sandbox, "s", suspended, patch_type=PatchType.MERGE)
    assert condition(changed) is not None
    assert not is_ready(changed)


def test_the_page_on_python_does_what_it_shows(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its examples are one program, and it runs."""
    page = (_ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    room = cluster.room()
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    # Read from the environment when the module is imported.
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(cluster.kubeconfig))
    program = program.replace('namespace="default"', f"namespace={room.name!r}")
    found: Json = {}
    exec(compile(program, "docs/python.md", "exec"), found)  # noqa: S102
    # The official client leaves its connections open.
    found["changes"].close()
    found["api"].api_client.rest_client.pool_manager.clear()
    claimed, resized, names, again = capsys.readouterr().out.splitlines()
    assert claimed.startswith("python-")
    assert again.startswith("python-")
    assert resized == "3"
    assert "notebook" in names
