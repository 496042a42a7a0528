"""Webhooks that change objects on their way into the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kinds import Kind

__all__ = ["Webhook", "add_webhook"]

Json = dict[str, Any]
Webhook = Callable[[Kind, Json], None]
"""Changes an object of a kind in place; one that is created has no resourceVersion."""


def add_webhook(plane: ControlPlane, webhook: Webhook) -> None:
    """Let a webhook see each object that is created or updated, with its defaults.

    Of a status it sees nothing: such a webhook would have to be registered for the subresource.
    """
    admission = plane._verbs.admission
    before = admission.mutate

    def mutating(kind: Kind, obj: Json) -> None:
        before(kind, obj)
        admission.default(kind, obj)
        webhook(kind, obj)

    admission.mutate = mutating  # type: ignore[method-assign]
