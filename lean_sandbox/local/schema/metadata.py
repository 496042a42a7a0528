"""ObjectMeta: names, labels, annotations, owner references, finalizers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, names, paths

Json = dict[str, Any]

# All annotation keys and values of an object together (apimachinery TotalAnnotationSizeLimitB).
ANNOTATIONS_LIMIT_BYTES = 256 * 1024

_RFC1123_LABEL_KINDS = frozenset({"Namespace"})
# Services of Kubernetes 1.36 still have RFC 1035 names.
_RFC1035_LABEL_KINDS = frozenset({"Service"})
_PATH_KINDS = frozenset({"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"})
_IMMUTABLE = ("namespace", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_OWNER_ORDER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def name_rule(kind: str) -> names.NameRule:
    """Return the rule for names of a built-in or custom kind."""
    if kind in _RFC1123_LABEL_KINDS:
        return names.rfc1123_label_problems
    if kind in _RFC1035_LABEL_KINDS:
        return names.rfc1035_label_problems
    return names.path_segment_problems if kind in _PATH_KINDS else names.subdomain_problems


def _generated_problems(prefix: str, rule: names.NameRule) -> list[str]:
    # The random suffix ends the name, so a trailing hyphen is fine; it is not counted either.
    return rule(prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix)


def check_labels(labels: Any, path: str) -> Iterator[Cause]:
    """Give an error for each key and value that is not a label's."""
    for key, value in sorted((labels or {}).items()):
        for text in names.label_key_problems(key):
            yield errors.invalid(path, key, text)
        for text in names.label_value_problems(value):
            yield errors.invalid(path, value, text)


def check_annotations(annotations: Any, path: str) -> Iterator[Cause]:
    """Give an error for each bad key (case does not matter), and one for more than 256 KiB."""
    total = 0
    for key, value in sorted((annotations or {}).items()):
        total += len(key.encode()) + len(value.encode())
        for text in names.label_key_problems(key.lower()):
            yield errors.invalid(path, key, text)
    if total > ANNOTATIONS_LIMIT_BYTES:
        yield errors.too_long(path, ANNOTATIONS_LIMIT_BYTES)


def _ordered(owner: Json) -> Json:
    return {name: owner[name] for name in _OWNER_ORDER if name in owner}


def _check_owner(owner: Json, path: str) -> Iterator[Cause]:
    api_version = owner.get("apiVersion") or ""
    group, _, version = api_version.rpartition("/")
    if not version:
        where = paths.child(path, "apiVersion")
        yield errors.invalid(where, api_version, "version must not be empty")
    for name in ("kind", "name", "uid"):
        value = owner.get(name) or ""
        if not value:
            yield errors.invalid(paths.child(path, name), value, "must not be empty")
    if owner.get("kind") == "Event" and group in {"", "events.k8s.io"}:
        text = f"{group}/{version}, Kind=Event is disallowed from being an owner"
        yield errors.invalid(path, _ordered(owner), text)


def _check_owners(owners: list[Json], path: str) -> Iterator[Cause]:
    controllers: list[str] = []
    for owner in owners:
        yield from _check_owner(owner, path)
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
            if len(controllers) == 2:
                text = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controllers[0]} and {controllers[1]}'
                )
                yield errors.invalid(path, [_ordered(item) for item in owners], text)


def _check_name(meta: Json, rule: names.NameRule, path: str) -> Iterator[Cause]:
    name, prefix = meta.get("name") or "", meta.get("generateName") or ""
    if prefix:
        for text in _generated_problems(prefix, rule):
            yield errors.invalid(paths.child(path, "generateName"), prefix, text)
    where = paths.child(path, "name")
    if not name:
        yield errors.required(where, "name or generateName is required")
        return
    for text in rule(name):
        yield errors.invalid(where, name, text)


def _check_update(meta: Json, old: Json, path: str) -> Iterator[Cause]:
    for name in _IMMUTABLE:
        before, now = old.get(name), meta.get(name)
        # The server fills in what a client leaves out.
        if now is not None and now != before:
            yield errors.immutable(paths.child(path, name), now)
    if old.get("deletionTimestamp"):
        added = sorted(set(meta.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            text = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers {_go_strings(added)}"
            )
            yield errors.forbidden(paths.child(path, "finalizers"), text)


def _go_strings(values: list[str]) -> str:
    return "[]string{" + ", ".join(f'"{value}"' for value in values) + "}"


def validate_metadata(
    obj: Json,
    old: Json | None = None,
    *,
    rule: names.NameRule = names.subdomain_problems,
    namespaced: bool = True,
) -> list[Cause]:
    """Return what is wrong with an object's metadata; `old` is the stored object of an update."""
    path = "metadata"
    meta: Json = obj.get("metadata") or {}
    found = list(_check_name(meta, rule, path)) if old is None else []
    namespace = meta.get("namespace") or ""
    if namespaced and not namespace:
        found.append(errors.required(paths.child(path, "namespace")))
    elif not namespaced and namespace:
        found.append(errors.forbidden(paths.child(path, "namespace"), "not allowed on this type"))
    elif namespace and old is None:
        where = paths.child(path, "namespace")
        problems = names.rfc1123_label_problems(namespace)
        found += [errors.invalid(where, namespace, text) for text in problems]
    found += check_labels(meta.get("labels"), paths.child(path, "labels"))
    found += check_annotations(meta.get("annotations"), paths.child(path, "annotations"))
    owners = meta.get("ownerReferences") or []
    found += _check_owners(owners, paths.child(path, "ownerReferences"))
    where = paths.child(path, "finalizers")
    for finalizer in meta.get("finalizers") or ():
        problems = names.label_key_problems(finalizer)
        found += [errors.invalid(where, finalizer, text) for text in problems]
    if old is not None:
        found += _check_update(meta, old.get("metadata") or {}, path)
    return found
