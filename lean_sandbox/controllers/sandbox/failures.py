"""Errors of a pass, in the words that its Ready condition shows (spec, 3.14)."""

from __future__ import annotations

from lean_sandbox.kube.errors import ControlPlaneError, said
from lean_sandbox.model import messages
from lean_sandbox.model.messages import Failure


class OvertakenError(Exception):
    """The Sandbox was changed, replaced or deleted while a pass over it was under way.

    What the pass has planned may not hold any more; nothing failed, it begins anew.
    """


class RefusedError(Exception):
    """A child that cannot be used as it is; the text is what the Ready condition shows.

    Repeated with backoff: the way out is to change or remove the object that stands in the way.
    """

    retryable = True


class StepError(Exception):
    """An error of the API met in a named step; ``cause`` is the error itself."""

    retryable = True

    def __init__(self, step: Failure, cause: ControlPlaneError) -> None:
        super().__init__(messages.failed(step, said(cause)))
        self.cause = cause

    @property
    def retry_after_s(self) -> float | None:
        """What the server asked to wait, if it did."""
        wished: float | None = getattr(self.cause, "retry_after_s", None)
        return wished
