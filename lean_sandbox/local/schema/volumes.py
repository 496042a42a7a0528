"""Checks of a Pod's volumes, and of what they and variables take from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import (
    SELECTOR,
    Check,
    always,
    between,
    broken,
    named,
    needed,
    never,
    no_backsteps,
    one_of,
    relative_path,
)
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

# ------------------------------------------------------------------ references

# The fields that a Pod can be asked for: by volumes, by variables, and by neither.
_OF_BOTH: Final = ("metadata.name", "metadata.namespace", "metadata.uid")
_MAPS: Final = ("metadata.annotations", "metadata.labels")
_OF_VARIABLES: Final = (
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_OTHER_FIELDS: Final = ("spec.restartPolicy", "spec.schedulerName", "status.phase")
_RESOURCES: Final = tuple(
    f"{part}.{name}"
    for part in ("limits", "requests")
    for name in ("cpu", "ephemeral-storage", "memory")
)
_BYTES: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVISORS: Final = {
    "cpu": (("1m", "1"), "1m and 1", "cpu"),
    "memory": (_BYTES, ", ".join(_BYTES), "memory"),
    "ephemeral-storage": (_BYTES, ", ".join(_BYTES), "local ephemeral storage"),
}


def config_key_problems(key: str) -> list[str]:
    """Return what keeps a text from being a key of a ConfigMap or a Secret."""
    if len(key) > 253:
        return ["must be no more than 253 characters"]
    if key in {".", ".."}:
        return [f"must not be '{key}'"]
    if key.startswith(".."):
        return ["must not start with '..'"]
    text = (
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g."
        " 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is"
        " '[-._a-zA-Z0-9]+')"
    )
    return [] if re.fullmatch("[-._a-zA-Z0-9]+", key) else [text]


def _field(*allowed: str) -> Check:
    """Return a check for a field of the Pod itself."""

    def check(value: Json | None, where: str) -> Iterator[ErrorCause]:
        if value is None:
            return
        place = f"{where}.fieldPath"
        path = value.get("fieldPath") or ""
        version = value.get("apiVersion") or ""
        name, bracket, key = path.removesuffix("']").partition("['")
        text = ""
        if not path:
            yield causes.required(place)
            return
        if version != "v1":
            text = f"unsupported pod version: {version}"
        elif name not in (*_OF_BOTH, *_MAPS, *_OF_VARIABLES, *_OTHER_FIELDS):
            text = f"field label not supported: {path}"
        elif bracket and name not in _MAPS:
            text = f"field label does not support subscript: {path}"
        if text:
            yield causes.invalid(place, path, f"error converting fieldPath: {text}")
        elif not bracket and path not in allowed:
            yield causes.not_supported(place, path, sorted(allowed))
        elif bracket:
            for problem in causes.label_key_problems(key.lower()):
                yield causes.invalid(where, key, problem)

    return check


def _resource(*, is_named: bool) -> Check:
    """Return a check for a resource of a container, which has to be named in a volume."""

    def check(value: Json | None, where: str) -> Iterator[ErrorCause]:
        if value is None:
            return
        name = value.get("resource") or ""
        if is_named and not value.get("containerName"):
            yield causes.required(f"{where}.containerName")
        elif not name:
            yield causes.required(f"{where}.resource")
        elif name not in _RESOURCES and ".hugepages-" not in name:
            yield causes.not_supported(f"{where}.resource", name, _RESOURCES)
        known = _DIVISORS.get(name.partition(".")[2])
        divisor = value.get("divisor")
        if known and divisor not in (None, "0", *known[0]):
            text = f"only divisor's values {known[1]} are supported with the {known[2]} resource"
            yield causes.invalid(f"{where}.divisor", name, text)

    return check


_KEY: Final[Json] = {
    "name": always(causes.subdomain_problems),
    "key": (needed(), named(config_key_problems)),
}
VARIABLE_SOURCE: Final[Json] = {
    "fieldRef": _field(*_OF_BOTH, *_OF_VARIABLES),
    "resourceFieldRef": _resource(is_named=False),
    "configMapKeyRef": _KEY,
    "secretKeyRef": _KEY,
}
"""Where the value of a variable comes from."""

# ------------------------------------------------------------------ claims


def _claim(spec: Json, where: str) -> Iterator[ErrorCause]:
    modes = one_of("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
    given = spec.get("accessModes") or ()
    for mode in given:
        yield from modes(mode, f"{where}.accessModes")
    if "ReadWriteOncePod" in given and len(given) > 1:
        text = "may not use ReadWriteOncePod with other access modes"
        yield causes.forbidden(f"{where}.accessModes", text)
    source = spec.get("dataSource")
    reference = spec.get("dataSourceRef")
    if source and reference and source != reference:
        yield causes.invalid(where, {}, "must match dataSourceRef")
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield causes.required(f"{where}.resources[storage]")
    elif (parse_quantity(size) or 0) <= 0:
        yield causes.invalid(f"{where}.resources[storage]", size, "must be greater than zero")


def _source(source: Json | None, where: str) -> Iterator[ErrorCause]:
    kind = (source or {}).get("kind")
    if kind and not (source or {}).get("apiGroup") and kind != "PersistentVolumeClaim":
        text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield causes.invalid(where, kind, text)


CLAIM: Final[Any] = (
    _claim,
    {
        "accessModes": needed("at least 1 access mode is required"),
        "dataSource": (_source, {"name": needed()}),
        "dataSourceRef": (_source, {"name": needed()}),
        "selector": SELECTOR,
        "storageClassName": named(causes.subdomain_problems),
        "volumeAttributesClassName": named(causes.subdomain_problems),
        "volumeMode": one_of("Block", "Filesystem"),
    },
)
"""The spec of a PersistentVolumeClaim."""

# ------------------------------------------------------------------ volumes

_MODE: Final = between(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive")
_PATH: Final = (needed(), relative_path)


def _item_path(value: Any, where: str) -> Iterator[ErrorCause]:
    found = list(relative_path(value, where))
    if not found and (value or "").startswith(".."):
        found = [causes.invalid(where, value, "must not start with '..'")]
    yield from found


_ITEM_PATH: Final = (needed(), _item_path)
_ITEM: Final[Json] = {"key": needed(), "path": _ITEM_PATH, "mode": _MODE}


def _downward(item: Json, where: str) -> Iterator[ErrorCause]:
    # The server leaves out which item it is.
    place = where.rpartition(".items[")[0]
    yield from broken(item, place, {"path": _ITEM_PATH, "mode": _MODE})
    field = item.get("fieldRef")
    resource = item.get("resourceFieldRef")
    if field is not None and resource is not None:
        text = "fieldRef and resourceFieldRef can not be specified simultaneously"
        yield causes.invalid(place, "resource", text)
    elif field is None and resource is None:
        yield causes.required(place, "one of fieldRef and resourceFieldRef is required")
    else:
        yield from _field(*_OF_BOTH, *_MAPS)(field, f"{place}.fieldRef")
        yield from _resource(is_named=True)(resource, f"{place}.resourceFieldRef")


def _token(value: Json | None, where: str) -> Iterator[ErrorCause]:
    if value is None:
        return
    place = f"{where}.expirationSeconds"
    life_s = value.get("expirationSeconds") or 0
    if life_s < 600:
        yield causes.invalid(place, life_s, "may not specify a duration less than 10 minutes")
    elif life_s > 2**32:
        yield causes.invalid(place, life_s, "may not specify a duration larger than 2^32 seconds")
    # The server leaves out which source it is.
    yield from broken(value, where.partition(".sources[")[0], {"path": _PATH})


def _one_projection(source: Json, where: str) -> Iterator[ErrorCause]:
    for _ in [key for key in source if source[key] is not None][1:]:
        yield causes.forbidden(where, "may not specify more than 1 volume type per source")


def _projected_paths(value: Json | None, where: str) -> Iterator[ErrorCause]:
    seen: set[str] = set()
    for source in (value or {}).get("sources") or ():
        for part in filter(None, source.values()):
            for item in part.get("items") or ():
                if (path := item.get("path")) and path in seen:
                    text = "conflicting duplicate paths"
                    yield causes.invalid(where, part.get("name") or path, text)
                seen.add(path)


_PROJECTION: Final = (
    _one_projection,
    {
        "configMap": {"name": needed(), "items[*]": _ITEM},
        "secret": {"name": needed(), "items[*]": _ITEM},
        "downwardAPI": {"items[*]": _downward},
        "serviceAccountToken": _token,
    },
)


_absolute: Final = never(lambda path: not path.startswith("/"), "must be an absolute path")


def _size_limit(value: Any, where: str) -> Iterator[ErrorCause]:
    if (parse_quantity(value) or 0) < 0:
        text = "SizeLimit field must be a valid resource quantity"
        yield causes.forbidden(where, text)


def _one_source(volume: Json, where: str) -> Iterator[ErrorCause]:
    sources = [key for key in volume if key != "name" and volume[key] is not None]
    for extra in sources[1:]:
        yield causes.forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")


PULL_POLICY: Final = one_of("Always", "IfNotPresent", "Never")
_HOST_TYPES: Final = (
    *("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate"),
    *("File", "FileOrCreate", "Socket"),
)
VOLUME: Final[Any] = (
    _one_source,
    {
        "name": (needed(), named(causes.rfc1123_label_problems)),
        "configMap": {"name": needed(), "defaultMode": _MODE, "items[*]": _ITEM},
        "csi": {"driver": needed()},
        "downwardAPI": {"defaultMode": _MODE, "items[*]": _downward},
        "emptyDir": {"sizeLimit": _size_limit},
        "ephemeral": {"volumeClaimTemplate": (needed(), {"spec": CLAIM})},
        "hostPath": {"path": (needed(), no_backsteps()), "type": one_of(*_HOST_TYPES)},
        "image": {"reference": needed(), "pullPolicy": PULL_POLICY},
        "nfs": {"server": needed(), "path": (needed(), _absolute)},
        "persistentVolumeClaim": {"claimName": needed()},
        "projected": (_projected_paths, {"defaultMode": _MODE, "sources[*]": _PROJECTION}),
        "secret": {"secretName": needed(), "defaultMode": _MODE, "items[*]": _ITEM},
    },
)
"""A volume of a Pod."""
