"""Lists: which version a request sees, and its pages."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from filters import SelectorError, parse_labels
from lean_sandbox.local.errors import (
    Cause,
    StatusError,
    bad_request,
    expired,
    invalid,
    too_large_version,
)
from lean_sandbox.local.registry import Kind
from lean_sandbox.local.serversettings import LocalSettings
from lean_sandbox.local.store import Collection, Entry
from lean_sandbox.model.names import shard_hash

_ALWAYS = ("metadata.name", "metadata.namespace")
_FIELD_TERM = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
_FIELD_SEPARATOR = re.compile(r"(?<!\\),")
_ESCAPED = re.compile(r"\\(.|$)|=", re.DOTALL)
_HEX = r"\s*'(0x(?:[0-9a-f]{16}|10{16}))'\s*"
_SHARD_RANGE = re.compile(
    rf"\s*shardRange\(\s*object\.metadata\.(uid|namespace)\s*,{_HEX},{_HEX}\)\s*"
)


class Page(NamedTuple):
    """The entries of one answer and its list metadata."""

    entries: list[Entry]
    metadata: dict[str, Any]


def _options_error(reason: str, message: str, field: str) -> StatusError:
    return invalid("meta.k8s.io", "ListOptions", "", [Cause(reason, message, field)])


def version_of(text: str, *, is_list: bool = True) -> int:
    """Return a resourceVersion parameter as a number, 0 when empty.

    Raises:
        StatusError: 400 of a list; other requests take it for a failure of their own, 500.

    """
    if not text:
        return 0
    if not text.isdigit():
        why = (
            f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}":'
            " invalid syntax"
        )
        raise (
            bad_request(f"invalid resource version: {why}")
            if is_list
            else StatusError(500, "", why)
        )
    return int(text)


def _forbidden(message: str, field: str = "resourceVersionMatch") -> StatusError:
    return _options_error("FieldValueForbidden", f"Forbidden: {message}", field)


def check_options(query: Mapping[str, str], *, is_watch: bool, streaming: bool) -> None:
    """Refuse combinations of list options that make no sense.

    Raises:
        StatusError: 422, or 400 for a continue token beside a version.

    """
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    initial = query.get("sendInitialEvents", "")
    if initial:
        if not is_watch:
            raise _forbidden("sendInitialEvents is forbidden for list", "sendInitialEvents")
        if not streaming:
            raise _forbidden(
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is"
                " enabled",
                "sendInitialEvents",
            )
        if match != "NotOlderThan":
            raise _forbidden(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        return
    if not match:
        return
    if is_watch:
        raise _forbidden(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        )
    if not version:
        raise _forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if query.get("continue"):
        raise _forbidden("resourceVersionMatch is forbidden when continue is provided")
    if match not in ("Exact", "NotOlderThan"):
        text = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        raise _options_error("FieldValueNotSupported", text, "resourceVersionMatch")
    if match == "Exact" and version == "0":
        raise _forbidden('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


class FieldTerm(NamedTuple):
    """One requirement of a field selector: that a field has, or has not, a value."""

    path: str
    value: str
    equal: bool


def parse_fields(text: str) -> tuple[FieldTerm, ...]:
    """Return the requirements of a field selector. Raises SelectorError."""
    terms = []
    for part in filter(None, _FIELD_SEPARATOR.split(text)):
        match = _FIELD_TERM.fullmatch(part)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        path, operator, value = match.groups()
        terms.append(FieldTerm(path, _unescaped(value), equal=operator != "!="))
    return tuple(terms)


def _unescaped(value: str) -> str:
    for found in _ESCAPED.finditer(value):
        if found[0] == "=":
            raise SelectorError("invalid field selector: unescaped character in value: 61")
        if found[1] not in ("\\", ",", "="):
            raise SelectorError(f"invalid field selector: invalid escape sequence: {found[0]}")
    return _ESCAPED.sub(r"\1", value)


def _field_test(kind: Kind, term: FieldTerm) -> Callable[[Entry], bool]:
    field, value, equal = term
    if field == "metadata.name":
        return lambda entry: (entry.name == value) is equal
    if field == "metadata.namespace" and kind.selects_namespace:
        return lambda entry: (entry.namespace == value) is equal
    selector = kind.selectors.get(field)
    if selector is None:
        if not kind.is_custom and not kind.selectors:
            known = ", ".join(f'"{name}"' for name in _ALWAYS)
            raise bad_request(f'"{field}" is not a known field selector: only {known}')
        raise bad_request(f"field label not supported: {field}")
    paths, default = selector

    def matches(entry: Entry) -> bool:
        found = next((entry.fields[path] for path in paths if entry.fields.get(path)), default)
        return (found == value) is equal

    return matches


def _shard_test(text: str) -> Callable[[Entry], bool]:
    ranges = []
    for part in text.split("||"):
        found = _SHARD_RANGE.fullmatch(part)
        if found is None or int(found[2], 16) >= int(found[3], 16):
            raise StatusError(500, "", f"invalid shard selector: {part}")
        ranges.append((found[1], range(int(found[2], 16), int(found[3], 16))))
    return lambda entry: any(
        shard_hash(entry.namespace if field == "namespace" else entry.uid) in numbers
        for field, numbers in ranges
    )


def matcher(
    kind: Kind, query: Mapping[str, str], *, is_sharding: bool = False
) -> Callable[[Entry], bool] | None:
    """Return the test of the selectors in a query, None when everything matches.

    Raises:
        StatusError: 400 for a selector that cannot be read or a field that is not selectable, 500
            for such a selector of shards.

    """
    tests: list[Callable[[Entry], bool]] = []
    if is_sharding and (shards := query.get("shardSelector")):
        tests.append(_shard_test(shards))
    try:
        labels = parse_labels(query.get("labelSelector", ""))
        fields = parse_fields(query.get("fieldSelector", ""))
    except SelectorError as error:
        raise bad_request(str(error)) from None
    if labels.terms:
        tests.append(lambda entry: labels.matches(entry.labels))
    tests.extend(_field_test(kind, term) for term in fields)
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda entry: all(test(entry) for test in tests)


def _token(version: int, last: str) -> str:
    raw = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": last + "\0"})
    return base64.urlsafe_b64encode(raw.encode()).rstrip(b"=").decode()


def _read_token(text: str) -> tuple[int, str]:
    try:
        raw = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return int(raw["rv"]), str(raw["start"])
    except (ValueError, KeyError, TypeError):
        raise bad_request("invalid continue token: continue key is not valid") from None


def _limit_of(text: str) -> int:
    try:
        return max(0, int(text or 0))
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def list_page(
    kind: Kind,
    collection: Collection,
    namespace: str,
    query: Mapping[str, str],
    current: int,
    settings: LocalSettings,
) -> Page:
    """Return one page of a list, at the version its options ask for.

    Raises:
        StatusError: 400 and 422 for bad options, 410 for a forgotten version, 504 for a version
            that has not happened yet.

    """
    check_options(query, is_watch=False, streaming=True)
    matches = matcher(kind, query, is_sharding=settings.sharded_lists)
    text, exact = query.get("resourceVersion", ""), query.get("resourceVersionMatch") == "Exact"
    asked = version_of(text)
    if asked > current:
        raise too_large_version(asked, current)
    limit = _limit_of(query.get("limit", ""))
    token = query.get("continue", "")
    version, start = current, ""
    if token:
        if asked:
            raise bad_request("specifying resource version is not allowed when using continue")
        version, start = _read_token(token)
        if version < 0:
            version = current
        entries = _at(collection, version, namespace, start)
    elif exact:
        version = asked
        entries = collection.snapshot(version, namespace)
    else:
        entries = collection.scan(namespace)
        if text == "0":
            limit = 0  # answered from a watch cache, which does not page
    if settings.page_cap is not None:
        limit = min(limit or settings.page_cap, settings.page_cap)
    if start:
        entries = [entry for entry in entries if entry.key >= start]
    return _cut(entries, matches, limit, version)


def _at(collection: Collection, version: int, namespace: str, start: str) -> list[Entry]:
    try:
        return collection.snapshot(version, namespace)
    except StatusError:
        raise expired(
            "The provided continue parameter is too old to display a consistent list result. You"
            " can start a new list without the continue parameter, or use the continue token in"
            " this response to retrieve the remainder of the results. Continuing with the provided"
            " token results in an inconsistent list - objects that were created, modified, or"
            " deleted between the time the first chunk was returned and now may show up in the"
            " list.",
            _token(-1, start.removesuffix("\0")),
        ) from None


def _cut(
    entries: list[Entry], matches: Callable[[Entry], bool] | None, limit: int, version: int
) -> Page:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if matches is not None:
        entries = [entry for entry in entries if matches(entry)]
    if limit and len(entries) > limit:
        rest = len(entries) - limit
        entries = entries[:limit]
        metadata["continue"] = _token(version, entries[-1].key)
        if matches is None:
            # With a selector the server does not count what it has not looked at.
            metadata["remainingItemCount"] = rest
    return Page(entries, metadata)
