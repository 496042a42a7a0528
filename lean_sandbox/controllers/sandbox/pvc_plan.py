"""What to do about one PersistentVolumeClaim of a Sandbox (spec, 3.4)."""

from __future__ import annotations

from enum import Enum

from lean_sandbox.controllers.ownership import may_adopt, ownership_of, reference_of
from lean_sandbox.model import messages
from lean_sandbox.model.meta import Ownership
from lean_sandbox.watch.objects import PvcEntry


class PvcStep(Enum):
    """The next step for one claim."""

    KEEP = "keep"
    CREATE = "create"
    ADOPT = "adopt"


def plan_pvc(
    claim: PvcEntry | None, *, pvc_name: str, sandbox_name: str, uid: str, name_hash: str
) -> PvcStep | str:
    """Decide what to do about a claim; a string is the text of a refusal."""
    if claim is None:
        return PvcStep.CREATE
    match ownership_of(claim.owner, uid):
        case Ownership.OWNED:
            return PvcStep.KEEP
        case Ownership.UNOWNED:
            if may_adopt(claim.labels, name_hash):
                return PvcStep.ADOPT
            return messages.cannot_adopt(messages.PVC, pvc_name)
        case _:
            assert claim.owner is not None
            return messages.owned_by_other(
                messages.PVC, pvc_name, reference_of(claim.owner), sandbox_name
            )
