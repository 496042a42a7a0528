"""Laws of the selector builders: what the server would refuse is refused here, by name."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters import (
    SelectorError,
    any_semantic,
    exclude_namespaces,
    field_equals,
    field_not_equals,
    field_selector,
    label_equals,
    label_exists,
    label_in,
    label_not_equals,
    label_not_exists,
    label_not_in,
    label_selector,
    streaming_initial_list,
)


def test_label_terms_are_written_as_the_server_reads_them() -> None:
    """All operators of set and equality, joined by commas, sets in a fixed order."""
    assert label_selector(
        label_equals("app", "web"),
        label_not_equals("example.com/tier", ""),
        label_in("shard", "2", "1", "2"),
        label_not_in("env", "dev"),
        label_exists("a.b/c_d"),
        label_not_exists("gone"),
    ) == {
        "labelSelector": "app=web,example.com/tier!=,shard in (1,2),env notin (dev),a.b/c_d,!gone"
    }


def test_no_terms_are_no_parameter() -> None:
    """An empty selector is not sent."""
    assert label_selector() == {}
    assert field_selector(*exclude_namespaces()) == {}


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "A.b/c",
        "a/b/c",
        "-a",
        "a-",
        "a b",
        "x" * 64,
        "a..b/c",
        f"{'a.' * 127}b/c",
        "a\n",
    ],
)
def test_a_bad_label_key_is_refused_by_name(key: str) -> None:
    """Every builder checks the key, and the error names the part and shows it."""
    for build in (label_exists, label_not_exists):
        with pytest.raises(SelectorError, match=f"label key {re.escape(repr(key))}") as caught:
            build(key)
        assert (caught.value.field, caught.value.value) == ("label key", key)


@pytest.mark.parametrize("value", ["-a", "a.", "a b", "a,b", "x" * 64, "a/b", "é"])
@pytest.mark.parametrize("build", [label_equals, label_not_equals, label_in, label_not_in])
def test_a_bad_label_value_is_refused_by_name(
    build: Callable[[str, str], object], value: str
) -> None:
    """The error names the label whose value is wrong."""
    with pytest.raises(SelectorError, match="value of label app"):
        build("app", value)


def test_a_set_needs_values() -> None:
    """``in ()`` is refused by the server and here."""
    with pytest.raises(SelectorError, match="at least one"):
        label_in("app")


def test_longest_keys_and_values_are_accepted() -> None:
    """The limits are 253 characters for the prefix, 63 for the name and 63 for the value."""
    key = f"{'a.' * 126}b/{'x' * 63}"
    assert label_equals(key, "y" * 63) == f"{key}={'y' * 63}"


def test_field_values_are_escaped() -> None:
    """Backslash, comma and equals sign lose their meaning, the backslash first."""
    assert field_equals("metadata.name", "a\\b,c=d") == "metadata.name=a\\\\b\\,c\\=d"
    assert field_selector(field_not_equals("status.phase", "Pending")) == {
        "fieldSelector": "status.phase!=Pending"
    }


@given(value=st.text(max_size=20))
def test_an_escaped_value_reads_back_as_itself(value: str) -> None:
    """Removing the escapes gives the value, and no separator stands bare."""
    escaped = field_equals("f", value).removeprefix("f=")
    assert re.sub(r"\\(.)", r"\1", escaped, flags=re.DOTALL) == value
    assert not re.search(r"[,=]", re.sub(r"\\.", "", escaped, flags=re.DOTALL))


@pytest.mark.parametrize("path", ["", "a b", "a=b", "a,b", "a!"])
def test_a_bad_field_path_is_refused_by_name(path: str) -> None:
    """A path with separators would change the meaning of the selector."""
    with pytest.raises(SelectorError, match="field path"):
        field_equals(path, "x")


def test_namespaces_are_excluded_one_by_one() -> None:
    """Fields know no sets: a chain of inequalities does it, together with other terms."""
    terms = exclude_namespaces("kube-system", "istio", "kube-system")
    (selector,) = field_selector(*terms, field_equals("status.phase", "Running")).values()
    assert selector.split(",") == [
        "metadata.namespace!=kube-system",
        "metadata.namespace!=istio",
        "status.phase=Running",
    ]


@pytest.mark.parametrize("name", ["", "Upper", "a.b", "a_b", "-a", "x" * 64])
def test_a_bad_namespace_is_refused_by_name(name: str) -> None:
    """A name no namespace can have is a mistake in the settings."""
    with pytest.raises(SelectorError, match="namespace"):
        exclude_namespaces(name)


def test_list_options_merge_with_selectors() -> None:
    """Every builder returns plain query parameters under the names of the API."""
    assert any_semantic() | label_selector(label_exists("a")) == {
        "resourceVersion": "0",
        "resourceVersionMatch": "NotOlderThan",
        "labelSelector": "a",
    }
    assert streaming_initial_list() == {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
