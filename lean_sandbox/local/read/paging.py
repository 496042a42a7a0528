"""Lists: which version a request sees, and its pages."""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from filters import SelectorError, parse_labels
from lean_sandbox.local import errors
from lean_sandbox.local.errors import ErrorCause, StatusError
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.request import FieldTerm, integer, number, parse_fields
from lean_sandbox.local.schema.causes import forbidden, not_supported
from lean_sandbox.local.store import Collection, Entry
from lean_sandbox.model.names import shard_hash

_MATCH: Final = "resourceVersionMatch"
_INITIAL: Final = "sendInitialEvents"
_NOT_WITH_CONTINUE: Final = f"{_MATCH} is forbidden when continue is provided"
_BASE64: Final = re.compile("[A-Za-z0-9_-]+")
_HEX = r"\s*'(0x(?:[0-9a-f]{16}|10{16}))'\s*"
_SHARD_RANGE = re.compile(
    rf"\s*shardRange\(\s*object\.metadata\.(uid|namespace)\s*,{_HEX},{_HEX}\)\s*"
)


_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter, or use the continue token in this response to"
    " retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)


class ListPage(NamedTuple):
    """The entries of one answer and its list metadata."""

    entries: list[Entry]
    metadata: dict[str, Any]


def version_of(text: str, *, is_list: bool = True) -> int:
    """Return a resourceVersion parameter as a number, 0 when empty.

    Raises StatusError: 400 of a list; other requests take it for a failure of their own, 500.
    """
    try:
        return integer(text or "0")
    except ValueError as error:
        problem = f'resourceVersion: Invalid value: "{text}": {error}'
    if is_list:
        raise errors.bad_request(f"invalid resource version: {problem}")
    raise StatusError(500, "", problem)


def check_options(query: Mapping[str, str], *, is_watch: bool) -> None:
    """Refuse numbers that are none, and combinations of list options that make no sense.

    Raises StatusError: 400 for a number, 422 for a combination, with a cause for each that is
    wrong.
    """
    for name in ("limit", "timeoutSeconds"):
        number(query, name)
    found = list(_watch_mistakes(query) if is_watch else _list_mistakes(query))
    if found:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", found)


def _list_mistakes(query: Mapping[str, str]) -> Iterator[ErrorCause]:
    match = query.get(_MATCH, "")
    version = query.get("resourceVersion", "")
    if match:
        if not version:
            yield forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided")
        if query.get("continue"):
            yield forbidden(_MATCH, _NOT_WITH_CONTINUE)
        if match not in ("Exact", "NotOlderThan"):
            yield not_supported(_MATCH, match, ("Exact", "NotOlderThan", ""))
        if match == "Exact" and version == "0":
            yield forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"')
    if _INITIAL in query:
        yield forbidden(_INITIAL, f"{_INITIAL} is forbidden for list")


def _watch_mistakes(query: Mapping[str, str]) -> Iterator[ErrorCause]:
    match = query.get(_MATCH, "")
    if _INITIAL in query:
        if match != "NotOlderThan":
            yield forbidden(_MATCH, f"{_INITIAL} requires setting {_MATCH} to NotOlderThan")
    elif match:
        yield forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless {_INITIAL} is provided")
    elif query.get("resourceVersion", "") in ("", "0"):
        match = "NotOlderThan"  # such a watch begins with initial events, as if it had said so
    if match and match != "NotOlderThan":
        yield not_supported(_MATCH, match, ("NotOlderThan",))
    if match and query.get("continue"):
        yield forbidden(_MATCH, _NOT_WITH_CONTINUE)


def _field_test(kind: Kind, term: FieldTerm) -> Callable[[Entry], bool]:
    field, value, equal = term
    if field == "metadata.name":
        return lambda entry: (entry.name == value) is equal
    if field == "metadata.namespace" and kind.selects_namespace:
        return lambda entry: (entry.namespace == value) is equal
    selector = kind.selectors.get(field)
    if selector is None:
        if not kind.is_custom and not kind.selectors:
            known = '"metadata.name", "metadata.namespace"'
            raise errors.bad_request(f'"{field}" is not a known field selector: only {known}')
        raise errors.bad_request(f"field label not supported: {field}")
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

    Raises StatusError: 400 for a selector that cannot be read or a field that is not selectable,
    500 for such a selector of shards.
    """
    tests: list[Callable[[Entry], bool]] = []
    if is_sharding and (shards := query.get("shardSelector")):
        tests.append(_shard_test(shards))
    try:
        labels = parse_labels(query.get("labelSelector", ""))
        fields = parse_fields(query.get("fieldSelector", ""))
    except SelectorError as error:
        raise errors.bad_request(str(error)) from None
    if labels.terms:
        tests.append(lambda entry: labels.matches(entry.labels))
    tests.extend(_field_test(kind, term) for term in fields)
    if not tests:
        return None
    return lambda entry: all(test(entry) for test in tests)


class _Token(msgspec.Struct):
    """What a continue token says: the version of the list, and the key its next page begins at."""

    rv: int
    start: str
    v: Literal["meta.k8s.io/v1"] = "meta.k8s.io/v1"


def _token(version: int, last: str, namespace: str) -> str:
    start = "/" + last.removeprefix(f"{namespace}/" if namespace else "") + "\0"
    raw = msgspec.json.encode(_Token(version, start))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _read_token(text: str, namespace: str) -> tuple[int, str]:
    """Return the version, negative for the newest, and the first key of the page.

    Raises StatusError: 400.
    """
    refused = errors.bad_request(f"invalid continue token: continue key is not valid: {text}")
    if not _BASE64.fullmatch(text):  # padding is none either
        raise refused
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.json.decode(raw, type=_Token)
    except (ValueError, msgspec.DecodeError):
        raise refused from None
    path = "/" + token.start.removeprefix("/")
    if not token.rv or path == "/" or posixpath.normpath(path) != path or path[1] == "/":
        raise refused
    return token.rv, f"{namespace}{path}" if namespace else path[1:]


def list_page(
    kind: Kind,
    collection: Collection,
    namespace: str,
    query: Mapping[str, str],
    current: int,
    *,
    is_sharding: bool,
) -> ListPage:
    """Return one page of a list, at the version its options ask for.

    Raises StatusError: 400 and 422 for bad options, 410 for a forgotten version, 504 for a version
    that has not happened yet.
    """
    matches = matcher(kind, query, is_sharding=is_sharding)
    check_options(query, is_watch=False)
    text = query.get("resourceVersion", "")
    match = query.get(_MATCH, "")
    token = query.get("continue", "")
    limit = max(0, number(query, "limit") or 0)
    if token and text not in ("", "0"):
        raise errors.bad_request("specifying resource version is not allowed when using continue")
    version = version_of(text)
    start = ""
    is_exact = bool(token) or match == "Exact" or bool(version and limit and not match)
    if token:
        said, start = _read_token(token, namespace)
        version = said if said > 0 else current
    if version > current:
        raise errors.too_large_version(version, current)
    if not is_exact:
        version = current
    try:
        entries = collection.snapshot(version, namespace)
    except StatusError:
        if token:
            again = _token(-1, start.removesuffix("\0"), namespace)
            raise errors.expired(_TOO_OLD, again) from None
        raise
    if text == "0":
        limit = 0  # answered from a watch cache, which does not page
    if start:
        entries = [entry for entry in entries if entry.key >= start]
    return _cut(entries, matches, limit, version, namespace)


def _cut(
    entries: list[Entry],
    matches: Callable[[Entry], bool] | None,
    limit: int,
    version: int,
    namespace: str,
) -> ListPage:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if matches is not None:
        entries = [entry for entry in entries if matches(entry)]
    if limit and len(entries) > limit:
        rest = len(entries) - limit
        entries = entries[:limit]
        metadata["continue"] = _token(version, entries[-1].key, namespace)
        if matches is None:
            # With a selector the server does not count what it has not looked at.
            metadata["remainingItemCount"] = rest
    return ListPage(entries, metadata)
