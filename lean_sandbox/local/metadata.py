"""The rules of `metadata`: forms of names, labels, annotations, finalizers and owner references."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.registry import Kind

__all__ = ["check_metadata", "check_name", "ordered_metadata"]

Json = dict[str, Any]

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVICE: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_KEY_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
    r" for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
    " must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex"
    " used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SERVICE_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"
    " regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_KEY_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    " validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
    " '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_ANNOTATIONS_LIMIT: Final = 256 * 1024
_KEYS_ORDER: Final = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)


def ordered_metadata(metadata: Json) -> Json:
    """Return the known members of ``metadata`` in the order a server writes them, empty ones out."""
    return {key: metadata[key] for key in _KEYS_ORDER if metadata.get(key) not in (None, "", {}, [])}


def _bad(field: str, value: Any, text: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {text}", field)


def check_name(kind: Kind, name: str) -> Iterator[Cause]:
    """Yield what is wrong with a name."""
    if not name:
        text = "Required value: name or generateName is required"
        yield Cause("FieldValueRequired", text, "metadata.name")
    elif kind.path_name:
        if name in (".", "..") or "/" in name or "%" in name:
            yield _bad("metadata.name", name, "may not contain '/' or '%'")
    elif kind.label_name:
        service = kind.plural == "services"
        pattern, text = (_SERVICE, _SERVICE_TEXT) if service else (_LABEL, _LABEL_TEXT)
        if len(name) > 63:
            yield _bad("metadata.name", name, "must be no more than 63 characters")
        if not pattern.fullmatch(name):
            yield _bad("metadata.name", name, text)
    else:
        if len(name) > 253:
            yield _bad("metadata.name", name, "must be no more than 253 characters")
        if not _SUBDOMAIN.fullmatch(name):
            yield _bad("metadata.name", name, _SUBDOMAIN_TEXT)


def _check_key(field: str, key: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        yield _bad(field, key, "prefix part must be non-empty")
    elif prefix and not _SUBDOMAIN.fullmatch(prefix):
        yield _bad(field, key, "prefix part " + _SUBDOMAIN_TEXT)
    if not name:
        yield _bad(field, key, "name part must be non-empty")
    elif len(name) > 63:
        yield _bad(field, key, "name part must be no more than 63 characters")
    if not _KEY_NAME.fullmatch(name):
        yield _bad(field, key, _KEY_TEXT)


def check_metadata(kind: Kind, metadata: Json) -> Iterator[Cause]:
    """Yield everything wrong with the metadata of an object about to be stored."""
    yield from check_name(kind, metadata.get("name") or "")
    for key, value in (metadata.get("labels") or {}).items():
        yield from _check_key("metadata.labels", key)
        if len(value) > 63:
            yield _bad("metadata.labels", value, "must be no more than 63 characters")
        if not _VALUE.fullmatch(value):
            yield _bad("metadata.labels", value, _VALUE_TEXT)
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    for key in annotations:
        yield from _check_key("metadata.annotations", key.lower())
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        text = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        yield Cause("FieldValueTooLong", text, "metadata.annotations")
    for finalizer in metadata.get("finalizers") or ():
        yield from _check_key("metadata.finalizers", finalizer)
        if "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion", "kubernetes"):
            yield _bad(
                "metadata.finalizers",
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            )
    yield from _check_owners(metadata.get("ownerReferences") or ())


def _check_owners(references: Any) -> Iterator[Cause]:
    field = "metadata.ownerReferences"
    controllers = [item for item in references if item.get("controller")]
    for item in references:
        if not item.get("apiVersion"):
            yield _bad(field + ".apiVersion", "", "version must not be empty")
        for key in ("kind", "name", "uid"):
            if not item.get(key):
                yield _bad(f"{field}.{key}", "", "must not be empty")
    if len(controllers) > 1:
        first, second = controllers[:2]
        yield _bad(
            field,
            "",
            "Only one reference can have Controller set to true. Found \"true\" in references for"
            f" {first.get('kind')}/{first.get('name')} and"
            f" {second.get('kind')}/{second.get('name')}",
        )
