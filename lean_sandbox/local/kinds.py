"""What a kind is, and the table of built-in ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from lean_sandbox.local.errors import qualified


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
    schema: dict[str, Any] | None = None
    """Schema of a custom kind; control planes of one process share it, so nobody changes it."""
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


def make_kind(group: str, version: str, plural: str, kind: str, **more: Any) -> Kind:
    """Return a kind; what is not said follows from its name."""
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
    yield make_kind(
        "",
        "v1",
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        subresources=("status", "finalize"),
        selectable=("status.phase",),
    )
    yield make_kind(
        "",
        "v1",
        "nodes",
        "Node",
        namespaced=False,
        short_names=("no",),
        subresources=_STATUS,
        selectable=("spec.unschedulable",),
    )
    yield make_kind(
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
    yield make_kind(
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
    yield make_kind("", "v1", "endpoints", "Endpoints", short_names=("ep",), singular="endpoints")
    yield make_kind(
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short_names=("pvc",),
        subresources=_STATUS,
        returns_deleted=True,
    )
    yield make_kind(
        "",
        "v1",
        "persistentvolumes",
        "PersistentVolume",
        namespaced=False,
        short_names=("pv",),
        subresources=_STATUS,
        returns_deleted=True,
    )
    yield make_kind("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
    yield make_kind("", "v1", "secrets", "Secret", selectable=("type",))
    yield make_kind(
        "",
        "v1",
        "serviceaccounts",
        "ServiceAccount",
        short_names=("sa",),
        subresources=("token",),
        returns_deleted=True,
    )
    yield make_kind("", "v1", "events", "Event", short_names=("ev",), selectable=_EVENT_FIELDS)
    yield make_kind("", "v1", "limitranges", "LimitRange", short_names=("limits",))
    yield make_kind(
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
        yield make_kind(
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
    yield make_kind(
        "apps",
        "v1",
        "daemonsets",
        "DaemonSet",
        short_names=("ds",),
        categories=("all",),
        subresources=_STATUS,
        has_generation=True,
    )
    yield make_kind(
        "batch",
        "v1",
        "jobs",
        "Job",
        categories=("all",),
        subresources=_STATUS,
        has_generation=True,
    )
    yield make_kind(
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
    yield make_kind(
        net, "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",), has_generation=True
    )
    yield make_kind(
        net,
        "v1",
        "ingresses",
        "Ingress",
        short_names=("ing",),
        subresources=_STATUS,
        has_generation=True,
    )
    yield make_kind(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short_names=("pdb",),
        subresources=_STATUS,
        has_generation=True,
    )
    yield make_kind(rbac, "v1", "roles", "Role")
    yield make_kind(rbac, "v1", "rolebindings", "RoleBinding")
    yield make_kind(rbac, "v1", "clusterroles", "ClusterRole", namespaced=False)
    yield make_kind(rbac, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
    yield make_kind("coordination.k8s.io", "v1", "leases", "Lease")
    yield make_kind(
        "events.k8s.io",
        "v1",
        "events",
        "Event",
        short_names=("ev",),
        storage="events",
        selectable=tuple(name.replace("involvedObject", "regarding") for name in _EVENT_FIELDS),
    )
    yield make_kind(
        "storage.k8s.io",
        "v1",
        "storageclasses",
        "StorageClass",
        namespaced=False,
        short_names=("sc",),
        returns_deleted=True,
    )
    yield make_kind(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        namespaced=False,
        short_names=("pc",),
    )
    yield make_kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
    yield make_kind(
        "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", has_generation=True
    )
    yield make_kind(
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
    make_kind(group, "v1", plural, kind, namespaced=False)
    for group, plural, kind in (
        ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
        ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
    )
)
"""Kinds that are asked by POST and stored nowhere."""


def builtin_kinds() -> Iterator[Kind]:
    """Yield the kinds every server has."""
    yield from _core()
    yield from _workloads()
    yield from _others()
