"""The config file is YAML: what is read of it means what any YAML parser reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lean_sandbox.config.sources import read_file
from lean_sandbox.kube.errors import ConfigError

_VALUES = st.text(alphabet="ab1:#-?,[]{}&*!|>'\"%@`\\ ~=<\t\u00e9", max_size=7)
_LINES = st.one_of(
    st.builds("{}:{}{}".format, st.sampled_from(["a", "b-c", "d"]), st.just(" "), _VALUES),
    st.builds("{}- {}".format, st.sampled_from(["", "  ", " "]), _VALUES),
    st.sampled_from(["a:", "b-c:", "d :", "# x", "", "---", "  # y", "a", "-"]),
)


def parsed(text: str, file: Path) -> dict[str, str] | None:
    """Return what is read of a text, None if it is refused."""
    file.write_bytes(text.encode())
    try:
        return {given.name: given.text for given in read_file(file)}
    except ConfigError:
        return None


def as_yaml(text: str) -> dict[str, str]:
    """Return what YAML reads of it, every scalar as text and lists joined."""
    document: Any = yaml.load(text, yaml.BaseLoader)  # noqa: S506 -- makes nothing but texts
    assert not document or isinstance(document, dict)
    return {
        key: ",".join(value) if isinstance(value, list) else value
        for key, value in (document or {}).items()
    }


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300
)
@given(st.lists(_LINES, max_size=4).map("\n".join))
@example("a: [b, c] # d")
@example("a: 'it''s' # d")
@example('a: "\\"\\\\"')
@example("a:\r\n- b\r\n- 'c'\r\n")
@example("a: :8080")
@example("---\na: -1\n# end")
@example("a:\n  - b\n - c")
@example("a: [b:, c]")
@example("a: []")
@example("---\n---\na: b")
def test_whatever_is_read_is_what_yaml_reads(tmp_path: Path, text: str) -> None:
    """Any text is refused, or gives the keys and values that a YAML parser gives."""
    found = parsed(text, tmp_path / "config.yaml")
    assert found is None or found == as_yaml(text)


def test_the_forms_that_are_promised_are_read(tmp_path: Path) -> None:
    """Comments, quotes, both kinds of lists, and values that look like other things."""
    text = """\
---
# of the house
extensions: true            # a boolean
kube-api-qps: -1
metrics-bind-address: :8080
sandbox-status-window: 1m30s
sandbox-label-selector: "team in (a, b),!c"
kubeconfig: 'C:\\it''s here # no comment'
namespaces: [a, b]
exclude-namespaces:
- kube-system
- "build"
context: ""
leader-election-lease: |-
  block
"""
    assert parsed(text, tmp_path / "config.yaml") == {
        "extensions": "true",
        "kube-api-qps": "-1",
        "metrics-bind-address": ":8080",
        "sandbox-status-window": "1m30s",
        "sandbox-label-selector": "team in (a, b),!c",
        "kubeconfig": "C:\\it's here # no comment",
        "namespaces": "a,b",
        "exclude-namespaces": "kube-system,build",
        "context": "",
        "leader-election-lease": "block",
    }


def test_nesting_without_end_is_said_so(tmp_path: Path) -> None:
    """Thousands of nested lists: an error that names the file."""
    file = tmp_path / "config.yaml"
    file.write_text("a: " + "[" * 5000)
    with pytest.raises(ConfigError, match="nested too deeply") as refused:
        list(read_file(file))
    assert refused.value.source == str(file)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\na: 2", 2, "twice"),
        ("a:", 1, "no value"),
        ("a: ~", 1, "no value"),
        ("a: null", 1, "no value"),
        ("b: 1\na:\n  b: 1", 3, "it is no"),
        ("a\n", 1, "it is no"),
        ("- a", 1, "it is no"),
        ("a: b: c", 1, "no YAML"),
        ("a: {b: c}", 1, "it is no"),
        ("a: [[b]]", 1, "it is no"),
        ("a: [b", 1, "no YAML"),
        ("a: 'b", 1, "no YAML"),
        ("b: 1\na:\tb", 2, "no YAML"),
        ("---\na: b\n---\na: b", 3, "no YAML"),
    ],
)
def test_what_is_not_read_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    """Nothing is guessed: the message names the line and the reason."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        list(read_file(file))
    assert refused.value.source == f"{file} line {line}"
    assert problem in refused.value.problem
