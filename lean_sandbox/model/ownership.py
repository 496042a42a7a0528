"""Whose an object is, and which unowned objects a Sandbox may adopt."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Protocol

from lean_sandbox.model.names import ADOPTABLE_LABEL, NAME_HASH_LABEL

# How the texts call the three kinds of children.
PVC: Final = "PVC"
POD: Final = "pod"
SERVICE: Final = "service"


class Ownership(Enum):
    """How an object relates to the one that wants to use it."""

    UNOWNED = "unowned"
    OWNED = "owned"
    OTHER = "owned by other"


class Controller(Protocol):
    """The owner reference that is marked as controller."""

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def uid(self) -> str: ...  # noqa: D102


def ownership(controller: Controller | None, uid: str) -> Ownership:
    """Return whether an object is controlled by ``uid``, by another one, or by nobody.

    Only the uid counts: an earlier object of the same kind and name is another one, and a reference
    written by an older API version with the same uid is ours.
    """
    if controller is None:
        return Ownership.UNOWNED
    return Ownership.OWNED if controller.uid == uid else Ownership.OTHER


def may_adopt(labels: Mapping[str, str] | None, name_hash: str) -> bool:
    """Return whether the labels of an unowned object authorise the Sandbox to adopt it."""
    labels = labels or {}
    return labels.get(ADOPTABLE_LABEL) == "true" or labels.get(NAME_HASH_LABEL) == name_hash


def owned_by_other(what: str, name: str, owner: Controller, sandbox_name: str) -> str:
    """Return why the child ``name`` of the kind ``what`` is refused: somebody else controls it."""
    return (
        f'{what} "{name}" is owned by {owner.kind}/{owner.name} (UID: {owner.uid}), '
        f'not by sandbox "{sandbox_name}"'
    )


def cannot_adopt(what: str, name: str) -> str:
    """Return why the unowned child ``name`` of the kind ``what`` is refused."""
    return (
        f'cannot adopt unowned {what} "{name}": missing required pool authorization label '
        f'("{ADOPTABLE_LABEL}") or sandbox tracking label ("{NAME_HASH_LABEL}")'
    )
