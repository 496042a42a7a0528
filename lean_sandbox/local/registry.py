"""The kinds the server knows: built-in ones from a table, custom ones from their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from lean_sandbox.local.errors import qualified

__all__ = ["REVIEWS", "Kind", "PrinterColumn", "Registry", "kinds_of_definition"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One `additionalPrinterColumns` entry."""

    name: str
    type: str
    path: str
    priority: int = 0
    description: str = ""
    format: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One served version of one kind, with everything a request needs to know of it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    is_custom: bool = False
    has_generation: bool = False
    returns_deleted: bool = False
    selectable: tuple[str, ...] = ()
    storage: str = ""
    """Collection the objects live in; versions and synonyms of a kind share one."""
    schema: Mapping[str, Any] | None = None
    columns: tuple[PrinterColumn, ...] = ()
    scale: Mapping[str, str] | None = None
    head: bytes = field(default=b"", repr=False)
    """The encoded start of an object: brace, kind and apiVersion, comma."""

    @property
    def api_version(self) -> str:
        """Return ``group/version``, or ``version`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_plural(self) -> str:
        """Return ``plural.group``, or ``plural`` in the core group."""
        return qualified(self.group, self.plural)

    @property
    def has_status(self) -> bool:
        """Say whether `/status` is a subresource, so that the two halves are written apart."""
        return "status" in self.subresources


def _kind(group: str, version: str, plural: str, kind: str, **more: Any) -> Kind:
    api_version = f"{group}/{version}" if group else version
    head = msgspec.json.encode({"kind": kind, "apiVersion": api_version})[:-1] + b","
    more.setdefault("singular", kind.lower())
    more.setdefault("list_kind", kind + "List")
    more["storage"] = more.get("storage") or qualified(group, plural)
    more["subresources"] = frozenset(more.get("subresources", ()))
    return Kind(group, version, plural, kind, head=head, **more)


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_STATUS = ("status",)
_SCALED = ("status", "scale")


def _core() -> Iterator[Kind]:
    yield _kind(
        "",
        "v1",
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        subresources=("status", "finalize"),
        selectable=("status.phase",),
    )
    yield _kind(
        "",
        "v1",
        "nodes",
        "Node",
        namespaced=False,
        short_names=("no",),
        subresources=_STATUS,
        selectable=("spec.unschedulable",),
    )
    yield _kind(
        "",
        "v1",
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        subresources=("status", "binding", "eviction"),
        has_generation=True,
        returns_deleted=True,
        selectable=_POD_FIELDS,
    )
    yield _kind(
        "",
        "v1",
        "services",
        "Service",
        short_names=("svc",),
        categories=("all",),
        subresources=_STATUS,
        returns_deleted=True,
        selectable=("spec.clusterIP", "spec.type"),
    )
    yield _kind("", "v1", "endpoints", "Endpoints", short_names=("ep",), singular="endpoints")
    yield _kind(
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short_names=("pvc",),
        subresources=_STATUS,
        returns_deleted=True,
    )
    yield _kind(
        "",
        "v1",
        "persistentvolumes",
        "PersistentVolume",
        namespaced=False,
        short_names=("pv",),
        subresources=_STATUS,
        returns_deleted=True,
    )
    yield _kind("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
    yield _kind("", "v1", "secrets", "Secret", selectable=("type",))
    yield _kind(
        "",
        "v1",
        "serviceaccounts",
        "ServiceAccount",
        short_names=("sa",),
        subresources=("token",),
        returns_deleted=True,
    )
    yield _kind("", "v1", "events", "Event", short_names=("ev",), selectable=_EVENT_FIELDS)
    yield _kind("", "v1", "limitranges", "LimitRange", short_names=("limits",))
    yield _kind(
        "",
        "v1",
        "resourcequotas",
        "ResourceQuota",
        short_names=("quota",),
        subresources=_STATUS,
        returns_deleted=True,
    )


def _workloads() -> Iterator[Kind]:
    scale = {"spec": ".spec.replicas", "status": ".status.replicas"}
    for plural, kind, short in (
        ("deployments", "Deployment", "deploy"),
        ("replicasets", "ReplicaSet", "rs"),
        ("statefulsets", "StatefulSet", "sts"),
    ):
        yield _kind(
            "apps",
            "v1",
            plural,
            kind,
            short_names=(short,),
            categories=("all",),
            subresources=_SCALED,
            has_generation=True,
            scale=scale,
        )
    yield _kind(
        "apps",
        "v1",
        "daemonsets",
        "DaemonSet",
        short_names=("ds",),
        categories=("all",),
        subresources=_STATUS,
        has_generation=True,
    )
    yield _kind(
        "batch",
        "v1",
        "jobs",
        "Job",
        categories=("all",),
        subresources=_STATUS,
        has_generation=True,
    )
    yield _kind(
        "batch",
        "v1",
        "cronjobs",
        "CronJob",
        short_names=("cj",),
        categories=("all",),
        subresources=_STATUS,
        has_generation=True,
    )


def _others() -> Iterator[Kind]:
    net, rbac = "networking.k8s.io", "rbac.authorization.k8s.io"
    yield _kind(
        net, "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",), has_generation=True
    )
    yield _kind(
        net,
        "v1",
        "ingresses",
        "Ingress",
        short_names=("ing",),
        subresources=_STATUS,
        has_generation=True,
    )
    yield _kind(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short_names=("pdb",),
        subresources=_STATUS,
        has_generation=True,
    )
    yield _kind(rbac, "v1", "roles", "Role")
    yield _kind(rbac, "v1", "rolebindings", "RoleBinding")
    yield _kind(rbac, "v1", "clusterroles", "ClusterRole", namespaced=False)
    yield _kind(
        rbac, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    )
    yield _kind("coordination.k8s.io", "v1", "leases", "Lease")
    yield _kind(
        "events.k8s.io",
        "v1",
        "events",
        "Event",
        short_names=("ev",),
        storage="events",
        selectable=tuple(name.replace("involvedObject", "regarding") for name in _EVENT_FIELDS),
    )
    yield _kind(
        "storage.k8s.io",
        "v1",
        "storageclasses",
        "StorageClass",
        namespaced=False,
        short_names=("sc",),
        returns_deleted=True,
    )
    yield _kind(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        namespaced=False,
        short_names=("pc",),
    )
    yield _kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
    yield _kind(
        "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", has_generation=True
    )
    yield _kind(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=_STATUS,
        has_generation=True,
    )


REVIEWS: Final = tuple(
    _kind(group, "v1", plural, kind, namespaced=False)
    for group, plural, kind in (
        ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
        ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
    )
)
"""Kinds that are asked by POST and stored nowhere."""


def _columns(version: Mapping[str, Any]) -> tuple[PrinterColumn, ...]:
    listed = version.get("additionalPrinterColumns")
    if not listed:
        return (PrinterColumn("Age", "date", ".metadata.creationTimestamp"),)
    return tuple(
        PrinterColumn(
            name=column["name"],
            type=column["type"],
            path=column["jsonPath"],
            priority=column.get("priority", 0),
            description=column.get("description", ""),
            format=column.get("format", ""),
        )
        for column in listed
    )


def kinds_of_definition(definition: Mapping[str, Any]) -> list[Kind]:
    """Return one kind for each served version of a CustomResourceDefinition."""
    spec = definition["spec"]
    names = spec["names"]
    kinds = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        kinds.append(
            _kind(
                spec["group"],
                version["name"],
                names["plural"],
                names["kind"],
                namespaced=spec["scope"] == "Namespaced",
                singular=names.get("singular") or names["kind"].lower(),
                list_kind=names.get("listKind") or names["kind"] + "List",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=tuple(subresources),
                is_custom=True,
                has_generation=True,
                selectable=tuple(
                    item["jsonPath"].lstrip(".") for item in version.get("selectableFields") or ()
                ),
                schema=(version.get("schema") or {}).get("openAPIV3Schema"),
                columns=_columns(version),
                scale=scale
                and {
                    "spec": scale["specReplicasPath"],
                    "status": scale["statusReplicasPath"],
                    "selector": scale.get("labelSelectorPath", ""),
                },
            )
        )
    return kinds


class Registry:
    """All kinds now served, by path and by name."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._custom: dict[str, list[Kind]] = {}
        self.revision = 0
        """Grows with every change, so that answers derived from the kinds can be cached."""
        for source in (_core(), _workloads(), _others()):
            self._add(source)

    def _add(self, kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            self._by_path[kind.group, kind.version, kind.plural] = kind
        self.revision += 1

    def define(self, definition: Mapping[str, Any]) -> None:
        """Serve (or serve anew) the kinds of a CustomResourceDefinition."""
        self.withdraw(definition)
        kinds = kinds_of_definition(definition)
        self._custom[definition["metadata"]["name"]] = kinds
        self._add(kinds)

    def withdraw(self, definition: Mapping[str, Any]) -> None:
        """Stop serving the kinds of a CustomResourceDefinition."""
        for kind in self._custom.pop(definition["metadata"]["name"], []):
            self._by_path.pop((kind.group, kind.version, kind.plural), None)
        self.revision += 1

    def get(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind at a path, None when nothing is served there."""
        return self._by_path.get((group, version, plural))

    def serves(self, group: str, version: str) -> bool:
        """Say whether anything is served under a group and version."""
        return any(key[0] == group and key[1] == version for key in self._by_path)

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind an object says it is."""
        for known in self._by_path.values():
            if known.kind == kind and known.api_version == api_version:
                return known
        return None

    def by_resource(self, name: str) -> Kind:
        """Return the kind called ``plural`` or ``plural.group``.

        Raises:
            KeyError: nothing of that name is served.

        """
        for known in self._by_path.values():
            if known.qualified_plural == name:
                return known
        raise KeyError(name)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_path.values())

    def of_storage(self, storage: str) -> Kind | None:
        """Return the first kind whose objects live in a collection."""
        for known in self._by_path.values():
            if known.storage == storage:
                return known
        return None
