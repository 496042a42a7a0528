"""Which Sandbox is a claim's: the first of four marks counts, and the claim has to control it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.controllers.claim.owned import acquired, own_sandbox
from lean_sandbox.model.claim import BoundSandbox, SandboxClaimStatus
from lean_sandbox.model.meta import controller_reference
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources import build_caches
from lean_sandbox.watch.resources.extensions import ClaimEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry
from tests.support.names import ANNOTATION, LAUNCH_TYPE

# In the order in which they count; "other" is controlled by the claim, and has no mark.
NAMES = ("in-status", "in-annotation", "c", "taken", "other")
CLAIM = ClaimEntry(
    key=Key("ns", "c"),
    uid="uid-c",
    version=1,
    annotations={ANNOTATION: "in-annotation"},
    status=SandboxClaimStatus(bound=BoundSandbox("in-status")),
)


def sandbox(name: str, *, uid: str = "uid-c", kind: str = "SandboxClaim") -> SandboxEntry:
    """Return a Sandbox with the controller that is named."""
    group = "extensions.agents.x-k8s.io/v1beta1"
    return SandboxEntry(
        key=Key("ns", name),
        uid=f"uid-{name}",
        version=1,
        owner=controller_reference(kind, "c", uid, group),
        labels={LAUNCH_TYPE: "warm"} if name.startswith("taken") else {},
    )


@given(
    st.sets(st.sampled_from(NAMES)),
    st.dictionaries(
        st.sampled_from(NAMES),
        st.sampled_from([("another", "SandboxClaim"), ("uid-c", "SandboxWarmPool")]),
    ),
)
def test_the_first_mark_counts(ours: set[str], theirs: dict[str, tuple[str, str]]) -> None:
    """Whatever else there is, and whatever another claim or a pool controls under these names."""
    sandboxes = build_caches().sandboxes
    for name, (uid, kind) in theirs.items():
        sandboxes.put(sandbox(name, uid=uid, kind=kind))
    for name in ours:
        sandboxes.put(sandbox(name))
    found = own_sandbox(sandboxes, CLAIM)
    wanted = [name for name in NAMES[:-1] if name in ours]
    assert (found.key.name if found is not None else None) == next(iter(wanted), None)


def test_of_those_taken_over_the_first_by_name_counts_and_none_that_is_being_deleted() -> None:
    """The same for every process; the others are known, to be deleted."""
    sandboxes = build_caches().sandboxes
    for name in ("taken-c", "taken-b", "taken-a"):
        sandboxes.put(sandbox(name))
    sandboxes.mark(sandbox("taken-a"), is_deleting=True)
    found = own_sandbox(sandboxes, CLAIM)
    assert found is not None
    assert found.key.name == "taken-b"
    assert {one.key.name for one in acquired(sandboxes, CLAIM)} == {"taken-b", "taken-c"}
