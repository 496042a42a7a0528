"""Our client speaks lightkube's language: who knows one of them can read the other."""

from __future__ import annotations

from enum import Enum
from inspect import Parameter, signature
from typing import get_type_hints

import lightkube
import pytest
from lightkube.types import CascadeType as LightkubeCascade
from lightkube.types import PatchType as LightkubePatch

from lean_sandbox.kube.client import CascadeType, Client, Options, PatchType

VERBS = ("get", "list", "create", "replace", "patch", "delete")
# What nothing here needs.
UNUSED = {"dry_run", "force"}


def parameters(client: type, verb: str) -> list[Parameter]:
    """Return what a verb of a client takes."""
    return list(signature(getattr(client, verb)).parameters.values())[1:]


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_verb_needs_is_given_in_the_order_of_lightkube(verb: str) -> None:
    """The resource is first where lightkube finds it in the object, the type of the answer last."""
    theirs = [p.name for p in parameters(lightkube.AsyncClient, verb) if p.default is p.empty]
    ours = [p.name for p in parameters(Client, verb) if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [name for name in ours if name != "type_"] == [*({"res"} - set(theirs)), *theirs]
    assert "type_" not in ours[:-1]


@pytest.mark.parametrize("verb", VERBS)
def test_options_have_the_names_of_lightkubes(verb: str) -> None:
    """Ours has all of them that the project needs, and more."""
    theirs = {parameter.name for parameter in parameters(lightkube.AsyncClient, verb)}
    ours = {parameter.name for parameter in parameters(Client, verb)} | set(get_type_hints(Options))
    assert theirs - ours <= UNUSED


@pytest.mark.parametrize(
    ("ours", "theirs"), [(PatchType, LightkubePatch), (CascadeType, LightkubeCascade)]
)
def test_patches_and_cascades_are_those_of_lightkube(ours: type[Enum], theirs: type[Enum]) -> None:
    """Same names, same values; not all of them are used."""
    known = {member.name: member.value for member in theirs}
    assert {member.name: member.value for member in ours}.items() <= known.items()
