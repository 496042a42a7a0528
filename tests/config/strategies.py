"""Values that an option can have, for the laws over all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from lean_sandbox.config import forms
from lean_sandbox.config import options as table
from lean_sandbox.config.declare import Option

__all__ = ["OPTIONS", "any_value", "assignments"]

OPTIONS = {option.name: option for option in table.OPTIONS.values()}
# What cannot be set freely: these contradict others, or need them.
_BOUND = {"sandbox_label_selector", "metrics_secure_serving", "exclude_namespaces", "shard"}

# What has to be a name, or empty.
_NAMES = {"leader_election_lease", "leader_election_namespace", "cluster_domain"}

_WORDS = st.text(alphabet="abcz09", min_size=1, max_size=6)
_LISTS = st.lists(_WORDS, max_size=3, unique=True).map(tuple)


def any_value(option: Option) -> st.SearchStrategy[Any]:
    """Return a strategy of values that an option accepts on its own."""
    form = option.form
    if option.name == "companions":
        alone = sorted(set(table.COMPANIONS) - table.OF_EXTENSIONS)
        return st.lists(st.sampled_from(alone), unique=True).map(tuple)
    if form is forms.BOOLEAN:
        return st.booleans()
    if form is forms.INTEGER:
        return st.integers(1, 2**62)
    if form is forms.NUMBER:
        return st.floats(0.0, 1e9)
    if form is forms.DURATION:
        return st.integers(1, 10**15).map(lambda ns: ns / 10**9)
    if form in (forms.NAMES, forms.NAMESPACES, forms.DOMAINS):
        return _LISTS
    if form.words:
        return st.sampled_from(form.words).map(form.parse)
    if form is forms.SHARD:
        return st.sampled_from(["", "0/2", "7/3", "1/0x8000000000000000"]).map(form.parse)
    if option.name in _NAMES:
        return st.sampled_from(["", "a", "shard-0-of-2"])
    if form.metavar == "ADDRESS":
        return st.sampled_from(["0", ":1", "[::1]:2"])
    if form is forms.LABEL_SELECTOR:
        return st.sampled_from(["", "a=b", "a in (b,c),!d"]).map(form.parse)
    return st.text(alphabet="abc:/.# '\"\\[]{},-&*!|>%@`?", max_size=8)


def assignments() -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of values for any options that go together."""
    free = {name: any_value(option) for name, option in OPTIONS.items() if name not in _BOUND}
    return st.fixed_dictionaries({}, optional=free)


def written(name: str, value: Any) -> str:
    """Return a value as every source has it."""
    return OPTIONS[name].form.write(value)
