"""ObjectMeta: names, labels and their selectors, owners; what writes keep, and its generation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from filters.selectors import LabelSelector, LabelTerm
from lean_sandbox.local import recorded
from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import broken, labels, named, needed, warning_header
from lean_sandbox.local.schema.structural import METADATA, is_same

Json = dict[str, Any]

# All annotation keys and values of an object together (apimachinery TotalAnnotationSizeLimitB).
_ANNOTATIONS_LIMIT_BYTES: Final = 256 * 1024
_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "", "DoesNotExist": "!"}
_OWNER_ORDER: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
NAME_RULES: Final[dict[str, causes.NameRule]] = {
    **dict.fromkeys(("Namespace", "Service"), causes.rfc1123_label_problems),
    **dict.fromkeys(
        ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"), causes.path_segment_problems
    ),
}
"""The rules for names of built-in kinds whose names are no subdomains."""


def _annotations(annotations: Any, path: str) -> Iterator[ErrorCause]:
    total = 0
    for key, value in sorted((annotations or {}).items()):
        total += len(key.encode()) + len(value.encode())
        for text in causes.label_key_problems(key.lower()):
            yield causes.invalid(path, key, text)
    if total > _ANNOTATIONS_LIMIT_BYTES:
        yield causes.too_long(path, _ANNOTATIONS_LIMIT_BYTES)


def _finalizers(finalizers: Any, path: str) -> Iterator[ErrorCause]:
    for name in finalizers or ():
        yield from (causes.invalid(path, name, text) for text in causes.label_key_problems(name))
    if {"orphan", "foregroundDeletion"} <= set(finalizers or ()):
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        yield causes.invalid(path, finalizers, text)


def _ordered(owner: Json) -> Json:
    return {name: owner[name] for name in _OWNER_ORDER if name in owner}


def _owner(owner: Json, path: str) -> Iterator[ErrorCause]:
    api_version = owner.get("apiVersion") or ""
    group, _, version = api_version.rpartition("/")
    if not version or "/" in group:
        yield causes.invalid(f"{path}.apiVersion", api_version, "version must not be empty")
    for name in ("kind", "name", "uid"):
        if not owner.get(name):
            yield causes.invalid(f"{path}.{name}", "", "must not be empty")
    if owner.get("kind") == "Event" and group in {"", "events.k8s.io"}:
        text = f"{group}/{version}, Kind=Event is disallowed from being an owner"
        yield causes.invalid(path, _ordered(owner), text)


def _owners(owners: Any, path: str) -> Iterator[ErrorCause]:
    controllers = []
    for owner in owners or ():
        yield from _owner(owner, path)
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
    if len(controllers) > 1:
        text = (
            "Only one reference can have Controller set to true. "
            f'Found "true" in references for {controllers[0]} and {controllers[1]}'
        )
        yield causes.invalid(path, [_ordered(item) for item in owners], text)


_METADATA: Final[Json] = {
    "labels": labels,
    "annotations": _annotations,
    "finalizers": _finalizers,
    "ownerReferences": _owners,
}


def _check_name(meta: Json, rule: causes.NameRule) -> Iterator[ErrorCause]:
    name = meta.get("name") or ""
    prefix = meta.get("generateName") or ""
    if prefix:
        # The random suffix ends the name, so a last hyphen is fine; it is not counted either.
        is_open = len(prefix) > 1 and prefix.endswith("-")
        for text in rule(prefix[:-2] + "a" if is_open else prefix):
            yield causes.invalid("metadata.generateName", prefix, text)
    yield from needed("name or generateName is required")(name, "metadata.name")
    yield from named(rule)(name, "metadata.name")


def _check_namespace(namespace: str, *, is_new: bool, namespaced: bool) -> Iterator[ErrorCause]:
    where = "metadata.namespace"
    if namespaced and not namespace:
        yield causes.required(where)
    elif not namespaced and namespace:
        yield causes.forbidden(where, "not allowed on this type")
    elif is_new:
        yield from named(causes.rfc1123_label_problems)(namespace, where)


def _check_update(meta: Json, old: Json) -> Iterator[ErrorCause]:
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        # The server fills in what a client leaves out.
        if (now := meta.get(name)) is not None and now != old.get(name):
            yield causes.immutable(f"metadata.{name}", now)
    added = sorted(set(meta.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if added and old.get("deletionTimestamp"):
        shown = ", ".join(f'"{name}"' for name in added)
        text = (
            "no new finalizers can be added if the object is being deleted, found new finalizers"
            f" []string{{{shown}}}"
        )
        yield causes.forbidden("metadata.finalizers", text)


def check_metadata(metadata: Json, where: str) -> Iterator[ErrorCause]:
    """Give what is wrong with labels, annotations, finalizers and owners."""
    yield from broken(metadata, where, _METADATA)


def validate_metadata(
    obj: Json,
    old: Json | None = None,
    *,
    rule: causes.NameRule = causes.subdomain_problems,
    namespaced: bool = True,
) -> list[ErrorCause]:
    """Return what is wrong with an object's metadata; `old` is the stored object of an update."""
    meta: Json = obj.get("metadata") or {}
    is_new = old is None
    found = list(_check_name(meta, rule)) if is_new else []
    found += _check_namespace(meta.get("namespace") or "", is_new=is_new, namespaced=namespaced)
    found += check_metadata(meta, "metadata")
    if (generation := meta.get("generation", 0)) < 0:
        text = "must be greater than or equal to 0"
        found.append(causes.invalid("metadata.generation", generation, text))
    if old is not None:
        found += _check_update(meta, old.get("metadata") or {})
    return found


def standard_finalizer(name: str, where: str) -> Iterator[ErrorCause]:
    """Check for a finalizer that the core group takes: of a domain, or known."""
    if "/" not in name and name not in causes.STANDARD_FINALIZERS:
        text = "name is neither a standard finalizer name nor is it fully qualified"
        yield causes.invalid(where, name, text)


def tidy_metadata(kind: Kind, metadata: Json, old: Json) -> Iterator[str]:
    """Drop repeated owners, in place; give the warnings that a write of ``metadata`` earns."""
    owners = metadata.get("ownerReferences")
    if isinstance(owners, list) and len(owners) > 1:
        kept = [owner for position, owner in enumerate(owners) if owner not in owners[:position]]
        if len(kept) < len(owners):
            twice = dict.fromkeys(str(one.get("uid")) for one in kept if owners.count(one) > 1)
            metadata["ownerReferences"] = kept
            yield warning_header(
                ".metadata.ownerReferences contains duplicate entries after mutating admission"
                " happens; API server dedups owner references in 1.20+, and may reject such"
                " requests as early as 1.24; please fix your requests; duplicate UID(s) observed:"
                f" {', '.join(twice)}"
            )
    before = old.get("finalizers") or ()
    for name in (metadata.get("finalizers") or ()) if kind.is_custom else ():
        if "/" not in name and name not in causes.STANDARD_FINALIZERS and name not in before:
            yield warning_header(
                f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name to avoid'
                " accidental conflicts with other finalizer writers"
            )


def ordered_metadata(metadata: Json) -> Json:
    """Return the known members in the order a server writes them, without empty ones."""
    return {
        key: metadata[key]
        for key in recorded.flags(METADATA)
        if key != "selfLink" and metadata.get(key) not in (None, "", {}, [])
    }


# ------------------------------------------------------------------ what a write keeps and counts


def put_back(old: Json, new: Json, members: Iterable[str]) -> None:
    """Give members the values that they had, none to those that were not there."""
    for name in members:
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)


def keep_system(old: Json, new: Json) -> None:
    """Put back the metadata that only the server sets."""
    put_back(old, new, ("uid", "creationTimestamp", "generation", "resourceVersion"))
    # What a write says of a deletion that has not begun is checked, and refused.
    if "deletionTimestamp" in old:
        new["deletionTimestamp"] = old["deletionTimestamp"]
        if "deletionGracePeriodSeconds" in old:
            new.setdefault("deletionGracePeriodSeconds", old["deletionGracePeriodSeconds"])


def count_generation(kind: Kind, old: Json, new: Json) -> None:
    """Raise the generation if anything changed that it counts."""
    if not kind.has_generation:
        return
    before, after = (_counted(kind, obj) for obj in (old, new))
    if not is_same(before, after):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _counted(kind: Kind, obj: Json) -> Json:
    """Return the part of an object whose changes its generation counts."""
    if kind.counted is not None:
        whole = {**obj, **{f"metadata.{key}": value for key, value in obj["metadata"].items()}}
        return {key: whole[key] for key in kind.counted if key in whole}
    ignored = {"metadata", "kind", "apiVersion", *(["status"] if kind.has_status else [])}
    return {key: value for key, value in obj.items() if key not in ignored}


def is_unchanged(old: Json, new: Json) -> bool:
    """Return whether a write changes nothing, so that the version stays."""
    return is_same({**old, "metadata": ordered_metadata(old["metadata"])}, new)


def selector_of(selector: Json) -> LabelSelector:
    """Return a label selector as objects write it; terms of an unknown operator select all."""
    equal = [
        LabelTerm(key, "=", frozenset((value,)))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    terms = [
        LabelTerm(one["key"], _OPERATORS[one["operator"]], frozenset(one.get("values") or ()))
        for one in selector.get("matchExpressions") or ()
        if one["operator"] in _OPERATORS
    ]
    return LabelSelector((*equal, *terms))
