"""What a kind is, and which built-in ones are served; the rest is as kube-apiserver has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from lean_sandbox.local import recorded
from lean_sandbox.local.errors import qualified

Json = dict[str, Any]

VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


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
    list_kind: str = ""
    verbs: Sequence[str] = VERBS
    subresources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What can be done with each subresource."""
    unserved: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The same of those that kube-apiserver has and this server has not."""
    resource: Json = field(default_factory=dict)
    """What the aggregated discovery says of it; shared, so nobody changes it."""
    is_custom: bool = False
    counted: tuple[str, ...] | None = None
    """The members whose changes the generation of a built-in kind counts, None if it has none."""
    returns_deleted: bool = False
    """Whether a DELETE answers with the object that is gone, and not with a Status."""
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
    columns: Sequence[Json] = ()
    """The `additionalPrinterColumns` of a custom kind."""
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
    def is_review(self) -> bool:
        """Say whether the kind is asked by POST and stored nowhere."""
        return list(self.verbs) == ["create"]

    @property
    def has_generation(self) -> bool:
        """Say whether changes are counted: of custom kinds all but those of metadata and status."""
        return self.is_custom or self.counted is not None

    @property
    def has_status(self) -> bool:
        """Say whether `/status` is a subresource, so that the two halves are written apart."""
        return "status" in self.subresources


def make_kind(group: str, version: str, plural: str, kind: str, **more: Any) -> Kind:
    """Return a kind; what is not said follows from its name."""
    api_version = f"{group}/{version}" if group else version
    head = msgspec.json.encode({"kind": kind, "apiVersion": api_version})[:-1] + b","
    more.setdefault("list_kind", kind + "List")
    more["storage"] = more.get("storage") or qualified(group, plural)
    compared = (path for found in more.get("selectors", {}).values() for path in found.paths)
    more["selectable"] = tuple(dict.fromkeys(compared))
    return Kind(group, version, plural, kind, head=head, **more)


def kind_of(group: str, version: str, resource: Json, **more: Any) -> Kind:
    """Return the kind that aggregated discovery describes."""
    return make_kind(
        group,
        version,
        resource["resource"],
        resource["responseKind"]["kind"],
        namespaced=resource["scope"] == "Namespaced",
        verbs=resource["verbs"],
        subresources={one["subresource"]: one["verbs"] for one in resource.get("subresources", ())},
        resource=resource,
        **more,
    )


_SPEC: Final = ("spec",)
_SERVED: Final[Mapping[str, tuple[str, ...] | None]] = {
    "configmaps": None,
    "events": None,
    "namespaces": None,
    "nodes": None,
    "persistentvolumeclaims": None,
    "pods": _SPEC,
    "secrets": None,
    "serviceaccounts": None,
    "services": None,
    "customresourcedefinitions.apiextensions.k8s.io": _SPEC,
    "daemonsets.apps": _SPEC,
    "deployments.apps": ("spec", "metadata.annotations"),
    "replicasets.apps": _SPEC,
    "statefulsets.apps": _SPEC,
    "selfsubjectreviews.authentication.k8s.io": None,
    "tokenreviews.authentication.k8s.io": None,
    "localsubjectaccessreviews.authorization.k8s.io": None,
    "selfsubjectaccessreviews.authorization.k8s.io": None,
    "selfsubjectrulesreviews.authorization.k8s.io": None,
    "subjectaccessreviews.authorization.k8s.io": None,
    "cronjobs.batch": _SPEC,
    "jobs.batch": _SPEC,
    "leases.coordination.k8s.io": None,
    "events.events.k8s.io": None,
    "networkpolicies.networking.k8s.io": _SPEC,
    "runtimeclasses.node.k8s.io": None,
    "poddisruptionbudgets.policy": _SPEC,
    "clusterrolebindings.rbac.authorization.k8s.io": None,
    "clusterroles.rbac.authorization.k8s.io": None,
    "rolebindings.rbac.authorization.k8s.io": None,
    "roles.rbac.authorization.k8s.io": None,
    "priorityclasses.scheduling.k8s.io": (),
    "storageclasses.storage.k8s.io": None,
}
"""The built-in kinds that are served, and the members whose changes their generation counts."""
_RETURNS_DELETED: Final = (
    "persistentvolumeclaims",
    "pods",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
)
_UNSERVED: Final = frozenset(
    ("attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy", "resize")
)
"""Subresources that want a container, or more of a kubelet than there is."""
_STORED_AS: Final = {"events.events.k8s.io": "events"}
# Field selectors that compare something else than the member they name.
_SELECTORS: Final[Mapping[str, FieldSelector]] = {
    "source": FieldSelector(("source.component", "reportingComponent")),
    "reportingController": FieldSelector(("reportingComponent",)),
    "spec.hostNetwork": FieldSelector(("spec.hostNetwork",), "false"),
    "spec.unschedulable": FieldSelector(("spec.unschedulable",), "false"),
    "status.podIPs": FieldSelector(()),
    "status.successful": FieldSelector(("status.succeeded",), "0"),
}
_SCALE: Final = {"spec": ".spec.replicas", "status": ".status.replicas"}


@cache
def builtin_kinds() -> tuple[Kind, ...]:
    """Return the kinds that every server has, in the order of discovery."""
    return tuple(
        _recorded_kind(group["metadata"].get("name", ""), version["version"], resource)
        for group in recorded.discovery()
        for version in group["versions"]
        for resource in version["resources"]
        if qualified(group["metadata"].get("name", ""), resource["resource"]) in _SERVED
    )


def _recorded_kind(group: str, version: str, recording: Json) -> Kind:
    name = qualified(group, recording["resource"])
    resource = {key: value for key, value in recording.items() if key != "selectable"}
    subresources = resource.pop("subresources", ())
    if served := [one for one in subresources if one["subresource"] not in _UNSERVED]:
        resource["subresources"] = served
    selectable = recording.get("selectable", ())
    return kind_of(
        group,
        version,
        resource,
        unserved={one["subresource"]: one["verbs"] for one in subresources if one not in served},
        counted=_SERVED[name],
        returns_deleted=name in _RETURNS_DELETED,
        selectors={
            path: _SELECTORS.get(path)
            or FieldSelector((path.replace("regarding.", "involvedObject."),))
            for path in selectable
            if not path.startswith("metadata.")
        },
        selects_namespace="metadata.namespace" in selectable,
        storage=_STORED_AS.get(name, ""),
        scale=_SCALE if any(one["subresource"] == "scale" for one in served) else None,
    )
