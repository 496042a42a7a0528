"""What a kind is, and which built-in ones are served; the rest is as kube-apiserver has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.errors import qualified

Json = dict[str, Any]

_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One `additionalPrinterColumns` entry."""

    name: str
    type: str
    path: str
    priority: int = 0
    description: str = ""
    format: str = ""


class Subresource(NamedTuple):
    """What can be done with a subresource, and group, version and kind of its bodies."""

    verbs: tuple[str, ...]
    identity: tuple[str, str, str]


class FieldSelector(NamedTuple):
    """What a field selector compares: the first of some members that is there, or a default."""

    paths: tuple[str, ...]
    default: str = ""


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
    verbs: tuple[str, ...] = _VERBS
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    unserved: Mapping[str, Subresource] = field(default_factory=dict)
    """Subresources that kube-apiserver has and this server has not."""
    is_custom: bool = False
    has_generation: bool = False
    counted: tuple[str, ...] | None = None
    """The members whose changes the generation counts; None: all but metadata and status."""
    returns_deleted: bool = False
    selectors: Mapping[str, FieldSelector] = field(default_factory=dict)
    """What field selectors may name, besides name and namespace."""
    selectable: tuple[str, ...] = ()
    """The members that selectors compare: their values are kept beside each object."""
    selects_namespace: bool = True
    """Whether field selectors may name the namespace."""
    storage: str = ""
    """Collection the objects live in; versions and synonyms of a kind share one."""
    schema: Json | None = None
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
    compared = (path for found in more.get("selectors", {}).values() for path in found.paths)
    more["selectable"] = tuple(dict.fromkeys(compared))
    return Kind(group, version, plural, kind, head=head, **more)


_SERVED: Final[Mapping[str, tuple[str, ...]]] = {
    "v1": (
        "configmaps",
        "endpoints",
        "events",
        "limitranges",
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "resourcequotas",
        "secrets",
        "serviceaccounts",
        "services",
    ),
    "apiextensions.k8s.io/v1": ("customresourcedefinitions",),
    "apps/v1": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "authentication.k8s.io/v1": ("selfsubjectreviews", "tokenreviews"),
    "authorization.k8s.io/v1": (
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    ),
    "batch/v1": ("cronjobs", "jobs"),
    "coordination.k8s.io/v1": ("leases",),
    "discovery.k8s.io/v1": ("endpointslices",),
    "events.k8s.io/v1": ("events",),
    "networking.k8s.io/v1": ("ingresses", "networkpolicies"),
    "node.k8s.io/v1": ("runtimeclasses",),
    "policy/v1": ("poddisruptionbudgets",),
    "rbac.authorization.k8s.io/v1": (
        "clusterrolebindings",
        "clusterroles",
        "rolebindings",
        "roles",
    ),
    "scheduling.k8s.io/v1": ("priorityclasses",),
    "storage.k8s.io/v1": ("storageclasses",),
}
_UNSERVED_SUBRESOURCES: Final = frozenset(
    ("attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy", "resize")
)
# Kinds with a generation, and the members whose changes it counts.
_SPEC: Final = ("spec",)
_COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    "cronjobs.batch": _SPEC,
    "customresourcedefinitions.apiextensions.k8s.io": _SPEC,
    "daemonsets.apps": _SPEC,
    "deployments.apps": ("spec", "metadata.annotations"),
    "endpointslices.discovery.k8s.io": (
        "addressType",
        "endpoints",
        "ports",
        "metadata.labels",
    ),
    "ingresses.networking.k8s.io": _SPEC,
    "jobs.batch": _SPEC,
    "networkpolicies.networking.k8s.io": _SPEC,
    "poddisruptionbudgets.policy": _SPEC,
    "pods": _SPEC,
    "priorityclasses.scheduling.k8s.io": (),
    "replicasets.apps": _SPEC,
    "statefulsets.apps": _SPEC,
}
# A DELETE of these answers with the object that is gone, of others with a Status.
_RETURN_DELETED: Final = frozenset(
    (
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "resourcequotas",
        "serviceaccounts",
        "services",
        "storageclasses.storage.k8s.io",
    )
)
_STORED_AS: Final = {"events.events.k8s.io": "events"}
_EVENT_TARGET: Final = (
    "apiVersion",
    "fieldPath",
    "kind",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
)
# Field selectors that compare something else than the member they name.
_SELECTORS: Final[Mapping[str, FieldSelector]] = {
    "source": FieldSelector(("source.component", "reportingComponent")),
    "reportingController": FieldSelector(("reportingComponent",)),
    **{f"regarding.{name}": FieldSelector((f"involvedObject.{name}",)) for name in _EVENT_TARGET},
    "spec.hostNetwork": FieldSelector(("spec.hostNetwork",), "false"),
    "spec.unschedulable": FieldSelector(("spec.unschedulable",), "false"),
    "status.podIPs": FieldSelector(()),
    "status.successful": FieldSelector(("status.succeeded",), "0"),
}
_SCALE: Final = {"spec": ".spec.replicas", "status": ".status.replicas"}


def builtin_kinds() -> tuple[Kind, ...]:
    """Return the kinds that every server stores, in the order of discovery."""
    return tuple(kind for kind in _recorded_kinds() if kind.verbs != ("create",))


def review_kinds() -> tuple[Kind, ...]:
    """Return the kinds that are asked by POST and stored nowhere."""
    return tuple(kind for kind in _recorded_kinds() if kind.verbs == ("create",))


@cache
def _recorded_kinds() -> tuple[Kind, ...]:
    return tuple(
        _recorded_kind(group["metadata"].get("name", ""), version["version"], resource)
        for group in recorded.discovery()
        for version in group["versions"]
        for resource in version["resources"]
        if resource["resource"]
        in _SERVED.get(
            "/".join(filter(None, (group["metadata"].get("name"), version["version"]))), ()
        )
    )


def _recorded_kind(group: str, version: str, resource: Json) -> Kind:
    plural = resource["resource"]
    name = qualified(group, plural)
    subresources = dict(_subresources(resource, (group, version)))
    return make_kind(
        group,
        version,
        plural,
        resource["responseKind"]["kind"],
        namespaced=resource["scope"] == "Namespaced",
        singular=resource["singularResource"],
        short_names=tuple(resource.get("shortNames", ())),
        categories=tuple(resource.get("categories", ())),
        verbs=tuple(resource["verbs"]),
        subresources={
            key: value for key, value in subresources.items() if key not in _UNSERVED_SUBRESOURCES
        },
        unserved={
            key: value for key, value in subresources.items() if key in _UNSERVED_SUBRESOURCES
        },
        has_generation=name in _COUNTED,
        counted=_COUNTED.get(name, ()),
        returns_deleted=name in _RETURN_DELETED,
        selectors={
            path: _SELECTORS.get(path) or FieldSelector((path,))
            for path in resource.get("selectable", ())
            if not path.startswith("metadata.")
        },
        selects_namespace="metadata.namespace" in resource.get("selectable", ()),
        storage=_STORED_AS.get(name, ""),
        scale=_SCALE if "scale" in subresources else None,
    )


def _subresources(resource: Json, own: tuple[str, str]) -> Iterator[tuple[str, Subresource]]:
    for found in resource.get("subresources", ()):
        body = found["responseKind"]
        group, version = body.get("group") or own[0], body.get("version") or own[1]
        identity = (group, version, body["kind"])
        yield found["subresource"], Subresource(tuple(found["verbs"]), identity)
