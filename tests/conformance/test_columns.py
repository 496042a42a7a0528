"""Laws of the tables that `kubectl get` shows: columns of all kinds, and paths of custom ones."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import pytest

from lean_sandbox.local import recorded
from tests.conformance.api import TABLE, Api, Room, answers
from tests.conformance.kinds import Sample, samples
from tests.conformance.objects import GROUP

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

# What is between name and age, and after it: `...` where it depends on the time or the server.
_Cell = str | int | bool | EllipsisType
_CELLS: dict[str, list[_Cell]] = {
    "configmaps": [3, ...],
    "namespaces": ["Active", ...],
    "nodes": ["Unknown,SchedulingDisabled", "<none>", ..., "", *["<none>"] * 2, *["<unknown>"] * 3],
    "persistentvolumeclaims": ["Pending", "", "", "", "none", "<unset>", ..., "Filesystem"],
    "pods": ["0/1", "Pending", "0", ..., *["<none>"] * 4],
    "secrets": ["Opaque", 2, ...],
    "serviceaccounts": [...],
    "services": ["ClusterIP", ..., "<none>", "80/TCP", ..., "a=b"],
    "networkpolicies.networking.k8s.io": ["a=b", ...],
    "poddisruptionbudgets.policy": ["50%", "N/A", 0, ...],
    "clusterrolebindings.rbac.authorization.k8s.io": [
        "ClusterRole/some", ..., "somebody", "", ""
    ],
    "clusterroles.rbac.authorization.k8s.io": [...],
    "rolebindings.rbac.authorization.k8s.io": ["Role/some", ..., "somebody", "", ""],
    "roles.rbac.authorization.k8s.io": [...],
    "customresourcedefinitions.apiextensions.k8s.io": [...],
    "priorityclasses.scheduling.k8s.io": [7, False, ..., "PreemptLowerPriority"],
    "leases.coordination.k8s.io": ["me", ...],
    "runtimeclasses.node.k8s.io": ["some", ...],
}  # fmt: skip
_EVENT = [..., ..., "Some", "pod/some", "", "tests", "a message", ..., 2]


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.kind.qualified_plural)
async def test_a_table_shows_the_columns_of_its_kind(api: Api, room: Room, sample: Sample) -> None:
    """A built-in kind that something acts on has the columns of a real server, and its cells."""
    if sample.kind.group == "events.k8s.io":
        pytest.skip("core Events have the same columns")
    if sample.kind.group in ("apps", "autoscaling"):
        pytest.skip("the embedded server shows no more of them than name and time")
    body = sample.body(f"{room.name}-cell", room.name)
    path = sample.path(room.name)
    (await api.post(path, body)).ok()
    name = body["metadata"]["name"]
    table = (await api.get(f"{path}/{name}", accept=TABLE)).ok()
    (await api.delete(f"{path}/{name}", gracePeriodSeconds="0")).ok()
    assert table["columnDefinitions"] == recorded.columns()[sample.kind.qualified_plural]
    known = _CELLS.get(sample.kind.qualified_plural)
    expected = [*_EVENT, name] if known is None else [name, *known]
    (cells,) = [row["cells"] for row in table["rows"]]
    assert len(cells) == len(expected)
    assert [
        known if known is ... else cell for cell, known in zip(cells, expected, strict=True)
    ] == expected


_OBJECT: Json = {
    "a": "A",
    "a.b": "AB",
    "a-b": "dash",
    "list": ["p", "q", "r"],
    "objs": [
        {"name": "x", "n": 1, "ok": True, "sub": {"k": "v"}},
        {"name": "y", "n": 2, "ok": False, "extra": 1},
    ],
    "flag": True,
    "num": 3.5,
    "empty": "",
    "none": [],
    "day": "2020-01-01",
}
# The cells that a path shows in columns of these types; None: it and later columns are left out.
_TYPES = ("string", "integer", "number", "boolean", "date")
_TEXT = (None, None, None, "<invalid>")
_NOTHING = (None,) * 5
_PATHS: list[tuple[str, tuple[Any, ...] | None]] = [
    (".spec.list[0]", ("p", *_TEXT)),
    (".spec.list[-1]", ("r", *_TEXT)),
    (".spec.list[9]", _NOTHING),
    (".spec.list[-9]", _NOTHING),
    (".spec.list[*]", ("p", *_TEXT)),
    ('.spec.list[?(@=="q")]', ("q", *_TEXT)),
    (".spec.list[0][1]", _NOTHING),
    (".spec.a[0]", _NOTHING),
    (".spec['a']", ("A", *_TEXT)),
    (".spec['a'].x", _NOTHING),
    (".spec['a.b']", _NOTHING),
    (r".spec.a\.b", ("AB", *_TEXT)),
    (".spec.a-b", ("dash", *_TEXT)),
    (".spec.objs[*].name", ("x", *_TEXT)),
    (".spec.objs.name", _NOTHING),
    (".spec.objs[?(@.name=='y')].n", ("2", 2, 2, None, None)),
    ('.spec.objs[?( @.name == "y" )].n', ("2", 2, 2, None, None)),
    (".spec.objs[?(@['name']=='x')].n", ("1", 1, 1, None, None)),
    (".spec.objs[?(@.n!=1)].name", ("y", *_TEXT)),
    (".spec.objs[?(@.extra)].name", ("y", *_TEXT)),
    (".spec.objs[?(@.ok==true)].name", ("x", *_TEXT)),
    (".spec.objs[?(@.sub.k=='v')].name", ("x", *_TEXT)),
    (".spec.objs[?(@.nope=='')].n", _NOTHING),
    (".spec.objs[0].sub", ('{"k":"v"}', None, None, None, None)),
    (".spec.flag", ("true", None, None, True, None)),
    (".spec.num", ("3.5", 3, 3.5, None, None)),
    (".spec.empty", ("", None, None, None, "<unknown>")),
    (".spec.day", ("2020-01-01", *_TEXT)),
    (".spec.none", ("[]", None, None, None, None)),
    (".spec.none[*]", _NOTHING),
    (".spec.nope.deep", _NOTHING),
    (".spec.", _NOTHING),
    ('.spec["a"]', None),
    (".spec.list[a]", None),
    (".spec[", None),
    (".spec.list[(@.length-1)]", None),
    (".spec.objs[?(@.name=='x' && @.n==1)].n", None),
    (".spec.objs[?(@.name=~'x')].n", None),
    (".spec.a,.spec.list", None),
]


async def test_a_column_shows_what_its_path_finds(api: Api) -> None:
    """Indexes and filters are kubectl's; what cannot be read is no failure."""
    group = f"paths.{GROUP}"
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"paths.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "paths", "kind": "Path"},
            "versions": [
                {
                    "name": f"v{number}",
                    "served": True,
                    "storage": number == 1,
                    "schema": {"openAPIV3Schema": open_schema},
                    "additionalPrinterColumns": [
                        {"name": type_, "type": type_, "jsonPath": path} for type_ in _TYPES
                    ],
                }
                for number, (path, _) in enumerate(_PATHS, 1)
            ],
        },
    }
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    (await api.post(definitions, definition)).ok()
    base = f"/apis/{group}"
    await answers(api, f"{base}/v1/paths")
    body = {"apiVersion": f"{group}/v1", "kind": "Path", "metadata": {"name": "a"}, "spec": _OBJECT}
    (await api.post(f"{base}/v1/paths", body)).ok()
    shown = {}
    for number, (path, _) in enumerate(_PATHS, 1):
        table = (await api.get(f"{base}/v{number}/paths/a", accept=TABLE)).ok()
        cells = table["rows"][0]["cells"][1:]
        assert len(cells) == len(table["columnDefinitions"]) - 1
        shown[path] = tuple(cells) or None
    (await api.delete(f"{definitions}/paths.{group}")).ok()
    assert shown == dict(_PATHS)
