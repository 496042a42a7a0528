"""Records what a real kube-apiserver says of its kinds: ``.ci/tasks record``.

The files go to ``lean_sandbox/local/data``, where the embedded server reads them. Whatever the
server answers is asked of it; numbers of protobuf fields come from the sources of its Go types,
which Go downloads.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from lean_sandbox import local
from tests.controlplane.binaries import provide
from tests.controlplane.server import RealServer, started
from tests.support.patience import PATIENCE_S

Json = dict[str, Any]

FOLDER: Final = Path(local.__file__).parent / "data"
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_TABLE: Final = "application/json;g=meta.k8s.io;v=v1;as=Table"
_API: Final = re.compile(r"api/v1$|apis/[^/]+/[^/]+$")
_MODULES: Final = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver")
_GO_MODULE: Final = Path(__file__).parent / "modules" / "kube"
# Roles of the control plane's own programs, of which there are none here.
_CONTROLLERS: Final = "system:controller:"
_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."


class Recorder:
    """Asks one server."""

    def __init__(self, server: RealServer) -> None:
        self._url = server.url
        self._token = server.token
        self._tls = ssl.create_default_context(cafile=str(server.authority))
        definitions = self._ask("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
        self._custom = {definition["spec"]["group"] for definition in definitions}

    def _ask(self, path: str, accept: str = "application/json") -> Json:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        request = urllib.request.Request(self._url + path, headers=headers)  # noqa: S310 - our own
        with urllib.request.urlopen(request, context=self._tls, timeout=PATIENCE_S) as answer:  # noqa: S310
            return dict(json.loads(answer.read()))

    def schemas(self) -> Json:
        """Return the schema of every type by the name of its component, with descriptions."""
        found: Json = {}
        for path, entry in sorted(self._ask("/openapi/v3")["paths"].items()):
            if _API.match(path) and path.split("/")[1] not in self._custom:
                document = self._ask(entry["serverRelativeURL"])
                # The first one wins: shared types differ in nothing but the groups that use them.
                found = {**document.get("components", {}).get("schemas", {}), **found}
        return found

    def discovery(self) -> list[Json]:
        """Return every group with its versions, resources and subresources, preferred ones first.

        A resource that can be listed has ``selectable``, the fields that a field selector may name.
        """
        groups = self._groups()
        schemas = self.schemas()
        for group, version, resource in _listed(groups):
            version.pop("freshness", None)
            identity = {
                "group": group["metadata"].get("name", ""),
                "version": version["version"],
                "kind": resource["responseKind"]["kind"],
            }
            fields = _fields(schemas, identity)
            path = _collection(group, version, resource)
            resource["selectable"] = sorted(name for name in fields if self._knows(path, name))
        return groups

    def _groups(self) -> list[Json]:
        return [
            group
            for path in ("/api", "/apis")
            for group in self._ask(path, _AGGREGATED)["items"]
            if group["metadata"].get("name") not in self._custom
        ]

    def _knows(self, path: str, field: str) -> bool:
        try:
            self._ask(f"{path}?fieldSelector={field}%3Dx&limit=1")
        except urllib.error.HTTPError as error:
            if error.code != 400:
                raise
            return False
        return True

    def columns(self) -> Json:
        """Return the columns of every kind that can be listed, by plural or ``plural.group``."""
        found: Json = {}
        for group, version, resource in _listed(self._groups()):
            name = ".".join(filter(None, (resource["resource"], group["metadata"].get("name"))))
            table = self._ask(_collection(group, version, resource), _TABLE)
            found.setdefault(name, table["columnDefinitions"])
        return found

    def roles(self) -> list[Json]:
        """Return the cluster roles that a new cluster has, without their times and versions."""
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        found = self._ask(f"{path}?labelSelector=kubernetes.io/bootstrapping=rbac-defaults")[
            "items"
        ]
        roles = []
        for role in found:
            metadata = role["metadata"]
            if not metadata["name"].startswith(_CONTROLLERS):
                said = {key: metadata[key] for key in ("name", "labels", "annotations")}
                parts = {key: role[key] for key in ("aggregationRule", "rules") if role.get(key)}
                roles.append({"metadata": said, **parts})
        return roles


def _listed(groups: Iterable[Json]) -> Iterator[tuple[Json, Json, Json]]:
    """Yield group, version and resource of whatever can be listed."""
    for group in groups:
        for version in group["versions"]:
            for resource in version["resources"]:
                if "list" in resource["verbs"]:
                    yield group, version, resource


def _collection(group: Json, version: Json, resource: Json) -> str:
    name = group["metadata"].get("name")
    base = f"/apis/{name}" if name else "/api"
    return f"{base}/{version['version']}/{resource['resource']}"


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_descriptions(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_descriptions(item)
        for key, item in value.items()
        if not (key == "description" and isinstance(item, str))
    }


def _descriptions(schema: Json) -> Json:
    """Return what is said of a type, under "", and of its fields."""
    said = {"": schema, **schema.get("properties", {})}
    return {name: one["description"] for name, one in said.items() if one.get("description")}


def _fields(schemas: Json, identity: Json) -> Iterator[str]:
    """Yield the names a field selector might know: members of an object and of its members."""
    # Selectors know these by names of their own.
    yield from ("reportingComponent", "source", "status.successful")
    for schema in schemas.values():
        if identity in schema.get("x-kubernetes-group-version-kind", ()):
            for name, field in schema["properties"].items():
                if name not in ("reportingComponent", "source"):
                    yield name
                for reference in field.get("allOf", ()):
                    inner = schemas[reference["$ref"].rpartition("/")[2]]
                    yield from (f"{name}.{one}" for one in inner.get("properties", ()))


# ------------------------------------------------------------------ protobuf

_STRUCT: Final = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_MEMBER: Final = re.compile(
    r'(?P<go>\S+)\s+`json:"(?P<name>[^",]*)(?P<options>[^"]*)"[^`\n]*'
    r'protobuf:"\w+,(?P<number>\d+),[^`\n]*`'
)
_MESSAGE: Final = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_FIELD: Final = re.compile(
    r"^  (optional|repeated|map<string, )\s*([\w.]+)>? (\w+) = (\d+);", re.MULTILINE
)


def protobuf(components: Collection[str]) -> Json:
    """Return the fields of the messages of components and metadata, and of those within.

    A field is ``[number, name, type, flags]``. The type is a scalar of protobuf or the name of
    another message. Flags: ``l`` a list, ``m`` a map from strings, ``p`` a pointer in Go, ``o``
    left out of JSON when empty, ``i`` inlined: JSON has the members of the message in its place.
    """
    found: Json = {}
    for module in _MODULES:
        root = _source_of(module)
        for path in sorted(root.rglob("generated.proto")):
            package = f"{module}/{path.parent.relative_to(root)}"
            found.update(_messages(path, package))
    waiting = [name for name in found if name in components or name.startswith(_METADATA)]
    needed: Json = {}
    while waiting:
        name = waiting.pop()
        if name in found and name not in needed:
            needed[name] = found[name]
            waiting += [type_ for _, _, type_, _ in found[name]]
    return needed


def _source_of(module: str) -> Path:
    for command in (["mod", "download", module], ["list", "-m", "-f", "{{.Dir}}", module]):
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["go", *command],  # noqa: S607 - wherever the machine has it
            cwd=_GO_MODULE,
            capture_output=True,
            text=True,
            check=True,
        )
    return Path(done.stdout.strip())


def _component(package: str) -> str:
    domain, _, rest = package.partition("/")
    return ".".join((*reversed(domain.split(".")), *rest.split("/")))


def _messages(proto: Path, package: str) -> Iterator[tuple[str, list[list[Any]]]]:
    sources = "\n".join(path.read_text() for path in sorted(proto.parent.glob("*.go")))
    structs = {
        name: {int(found["number"]): found for found in _MEMBER.finditer(body)}
        for name, body in _STRUCT.findall(sources)
    }
    for message, body in _MESSAGE.findall(proto.read_text()):
        members = structs.get(message, {})
        fields = []
        for mode, kind, name, number in _FIELD.findall(body):
            flags = {"repeated": "l", "optional": ""}.get(mode, "m")
            member = members.get(int(number))
            if member is not None:
                flags += "p" * member["go"].startswith("*")
                flags += "o" * ("omitempty" in member["options"])
                flags += "i" * ("inline" in member["options"])
                name = member["name"] or name  # noqa: PLW2901 - JSON has another name for it
            fields.append([int(number), name, _type(kind, package), flags])
        yield f"{_component(package)}.{message}", fields


def _type(kind: str, package: str) -> str:
    if kind.startswith(".k8s.io."):
        path = kind.removeprefix(".k8s.io.").replace("_", "-")
        return f"io.k8s.{path}"
    return f"{_component(package)}.{kind}" if kind[0].isupper() else kind


# ------------------------------------------------------------------ files


def sections(server: RealServer) -> Json:
    """Return everything that is recorded, by the name of its file."""
    recorder = Recorder(server)
    schemas = recorder.schemas()
    return {
        "schemas": {name: _without_descriptions(schema) for name, schema in schemas.items()},
        "descriptions": {name: _descriptions(schema) for name, schema in schemas.items()},
        "discovery": recorder.discovery(),
        "columns": recorder.columns(),
        "roles": recorder.roles(),
        "protobuf": protobuf(schemas),
    }


def write(found: Json, folder: Path = FOLDER) -> None:
    """Write each section as compressed JSON, the same bytes for the same content."""
    for name, content in found.items():
        text = json.dumps(content, separators=(",", ":"), sort_keys=True)
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    with (
        TemporaryDirectory(prefix="lean-sandbox-") as place,
        started(provide(os.environ), Path(place), ()) as running,
    ):
        write(sections(running))
    sys.exit(0)
