"""The kinds the server knows: built-in ones as kube-apiserver has them, custom ones as defined.

Events are stored as core/v1, and shown as events.k8s.io/v1 to who asks there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain
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
    api_version: str = ""
    """``group/version``, or ``version`` in the core group."""
    qualified_plural: str = ""
    """``plural.group``, or ``plural`` in the core group."""
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
    more["qualified_plural"] = qualified(group, plural)
    more["storage"] = more.get("storage") or more["qualified_plural"]
    compared = (path for found in more.get("selectors", {}).values() for path in found.paths)
    more["selectable"] = tuple(dict.fromkeys(compared))
    return Kind(group, version, plural, kind, api_version=api_version, head=head, **more)


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
    "deployments.apps": ("spec", "metadata.annotations"),
    "replicasets.apps": _SPEC,
    "statefulsets.apps": _SPEC,
    "selfsubjectreviews.authentication.k8s.io": None,
    "tokenreviews.authentication.k8s.io": None,
    "selfsubjectaccessreviews.authorization.k8s.io": None,
    "selfsubjectrulesreviews.authorization.k8s.io": None,
    "subjectaccessreviews.authorization.k8s.io": None,
    "horizontalpodautoscalers.autoscaling": None,
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
}
"""The built-in kinds that are served, and the members whose changes their generation counts."""
_RETURNS_DELETED: Final = (
    "persistentvolumeclaims",
    "pods",
    "serviceaccounts",
    "services",
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
}
_SCALE: Final = {"spec": ".spec.replicas", "status": ".status.replicas"}


@cache
def builtin_kinds() -> tuple[Kind, ...]:
    """Return the kinds that every server has, in the order of discovery and in one version."""
    found: dict[str, Kind] = {}
    for group in recorded.discovery():
        group_name = group["metadata"].get("name", "")
        for version in group["versions"]:
            for resource in version["resources"]:
                name = qualified(group_name, resource["resource"])
                if name in _SERVED and name not in found:
                    found[name] = _recorded_kind(group_name, version["version"], resource)
    return tuple(found.values())


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


_SCALE_KIND: Final = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_AGE: Final = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)


@dataclass(frozen=True, slots=True)
class Definition:
    """The spec of a CustomResourceDefinition; shared by its readers, who do not change it."""

    spec: Json
    kinds: tuple[Kind, ...]
    """One for each served version."""
    stored: Kind
    """The version that objects are stored in, served or not."""


@lru_cache(maxsize=32)
def read_definition(spec: bytes) -> Definition:
    """Decode the spec of a CustomResourceDefinition.

    Cached by content, because schemas are large and the control planes of one process, as tests
    start them by the hundred, serve the same kinds.
    """
    decoded: Json = msgspec.json.decode(spec)
    kinds = {version["name"]: _kind_of(decoded, version) for version in decoded["versions"]}
    versions = decoded["versions"]
    served = tuple(kinds[version["name"]] for version in versions if version.get("served"))
    stored = next(version["name"] for version in versions if version.get("storage"))
    return Definition(decoded, served, kinds[stored])


def _kind_of(spec: Json, version: Json) -> Kind:
    names = spec["names"]
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    own = {"group": spec["group"], "version": version["name"], "kind": names["kind"]}
    parts = [
        {"subresource": name, "responseKind": body, "verbs": ["get", "patch", "update"]}
        for name, body in (("status", own), ("scale", _SCALE_KIND))
        if name in subresources
    ]
    resource = {
        "resource": names["plural"],
        "responseKind": own,
        "scope": spec["scope"],
        "singularResource": names.get("singular") or names["kind"].lower(),
        "verbs": list(VERBS),
        "shortNames": names.get("shortNames"),
        "categories": names.get("categories"),
        "subresources": parts,
    }
    selectable = [item["jsonPath"].lstrip(".") for item in version.get("selectableFields") or ()]
    return kind_of(
        spec["group"],
        version["name"],
        {key: value for key, value in resource.items() if value},
        list_kind=names.get("listKind") or names["kind"] + "List",
        is_custom=True,
        selectors={path: FieldSelector((path,)) for path in selectable},
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
        columns=version.get("additionalPrinterColumns") or _AGE,
        scale=scale
        and {
            "spec": scale["specReplicasPath"],
            "status": scale["statusReplicasPath"],
            "selector": scale.get("labelSelectorPath", ""),
        },
    )


class Registry:
    """All kinds now served, by path and by name."""

    def __init__(self) -> None:
        self._custom: dict[str, tuple[Kind, ...]] = {}
        self.ending: set[str] = set()
        """Names of the definitions that are being deleted."""
        self.revision = 0
        """Grows with every change, so that answers derived from the kinds can be cached."""
        self._index()

    def _index(self) -> None:
        """Find the kinds that are served now by what they are asked for: the first of each."""
        kinds = [*builtin_kinds(), *chain.from_iterable(self._custom.values())]
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in kinds}
        kinds.reverse()
        self._by_storage = {kind.storage: kind for kind in kinds}
        self._by_name = {kind.qualified_plural: kind for kind in kinds}
        self._by_kind = {
            (kind.api_version, kind.kind): kind for kind in kinds if not kind.is_review
        }
        self.revision += 1

    def define(self, name: str, definition: Definition) -> None:
        """Serve (or serve anew) the kinds of the CustomResourceDefinition of that name."""
        self._custom.pop(name, None)
        self._custom[name] = definition.kinds
        self._index()

    def withdraw(self, name: str) -> None:
        """Stop serving the kinds of the CustomResourceDefinition of that name."""
        self._custom.pop(name, None)
        self._index()

    def get(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind at a path, None when nothing is served there."""
        return self._by_path.get((group, version, plural))

    def serves_built_in(self, group: str, version: str = "") -> bool:
        """Say whether built-in kinds are served under a group, and a version if given."""
        return any(
            kind.group == group and version in ("", kind.version) and not kind.is_custom
            for kind in self._by_path.values()
        )

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return the stored kind an object says it is, None when there is none."""
        return self._by_kind.get((api_version, kind))

    def by_resource(self, name: str) -> Kind:
        """Return the kind called ``plural`` or ``plural.group``.

        Raises:
            KeyError: nothing of that name is served.

        """
        return self._by_name[name]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_path.values())

    def of_storage(self, storage: str) -> Kind | None:
        """Return the first kind whose objects live in a collection."""
        return self._by_storage.get(storage)


# ------------------------------------------------------------------ Events, which have two kinds

_TO_EVENTS: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_TO_CORE: Final = {new: old for old, new in _TO_EVENTS.items()}
# Written in core/v1 even when empty.
_LEFT_OUT: Final = ("reportingComponent", "reportingInstance")


def to_events(obj: Json) -> Json:
    """Return a core/v1 Event under the names of events.k8s.io/v1."""
    return {
        _TO_EVENTS.get(key, key): value
        for key, value in obj.items()
        if value != "" or key not in _LEFT_OUT
    }


def to_core(obj: Json) -> Json:
    """Return an events.k8s.io/v1 Event under the names of core/v1."""
    converted = {_TO_CORE.get(key, key): value for key, value in obj.items()}
    return {"source": {}, "firstTimestamp": None, "lastTimestamp": None, **converted}
