"""What is known of an object of each kind, and so whether it has to be fetched."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.watch.kind import Knowledge
from lean_sandbox.watch.resources.children import policy_kind, pvc_kind, service_kind
from lean_sandbox.watch.resources.extensions import claim_kind
from lean_sandbox.watch.resources.pod import pod_kind
from lean_sandbox.watch.resources.sandbox import sandbox_kind
from tests.watch.hand import Hand
from tests.watch.objects import meta, owned_by, partial, pod, pod_meta, pod_row, sandbox

TEMPLATE = [{**owned_by("t")[0], "kind": "SandboxTemplate"}]
POLICY = {"metadata": meta("a", 10, ownerReferences=TEMPLATE), "spec": {}}
SERVICE = {"metadata": meta("a", 10, ownerReferences=owned_by("a")), "spec": {}}
CLAIM = {"metadata": meta("a", 10, generation=1), "spec": {}, "status": {}}
SPEC_CHANGED = partial("MODIFIED", meta("a", 11, generation=2))

# The kind, an object of it as listed, an event, and what is known after the event.
KNOWN = Knowledge.KNOWN
STALE = Knowledge.STALE
UNKNOWN = Knowledge.UNKNOWN
AFTER = {
    "a Sandbox of which the watch has shown metadata alone": (
        sandbox_kind(),
        None,
        partial("ADDED", meta("a", 11, generation=1)),
        UNKNOWN,
    ),
    "a Sandbox whose spec has changed": (sandbox_kind(), sandbox("a", 10), SPEC_CHANGED, STALE),
    "a claim whose spec has changed": (claim_kind(), CLAIM, SPEC_CHANGED, STALE),
    "a claim of which the watch has shown metadata alone": (
        claim_kind(),
        None,
        partial("ADDED", meta("a", 11, generation=1)),
        UNKNOWN,
    ),
    "a Pod of which the watch has shown a row": (
        pod_kind(),
        None,
        pod_row("ADDED", "a", 11, first=True),
        UNKNOWN,
    ),
    "a Pod whose row hints at another state": (
        pod_kind(),
        pod("a", 10),
        pod_row("MODIFIED", "a", 11, first=True, ready="0/1"),
        STALE,
    ),
    "a Pod whose row says the same": (
        pod_kind(),
        pod("a", 10),
        pod_row("MODIFIED", "a", 11, first=True),
        KNOWN,
    ),
    "a Pod that has crashed once more": (
        pod_kind(),
        pod("a", 10, ready=False),
        pod_row("MODIFIED", "a", 11, first=True, status="CrashLoopBackOff", ready="0/1"),
        KNOWN,
    ),
    "a Pod without a row": (
        pod_kind(),
        pod("a", 10),
        partial("MODIFIED", pod_meta("a", 11)),
        STALE,
    ),
    "a Service that was written to": (
        service_kind(),
        SERVICE,
        partial("MODIFIED", meta("a", 11, ownerReferences=owned_by("a"))),
        UNKNOWN,
    ),
    "a policy that was written to": (
        policy_kind(),
        POLICY,
        partial("MODIFIED", meta("a", 11, ownerReferences=TEMPLATE)),
        UNKNOWN,
    ),
    "a claim for a volume, of which only metadata is read": (
        pvc_kind(),
        None,
        partial("ADDED", meta("a", 11)),
        KNOWN,
    ),
}


@pytest.mark.parametrize(("kind", "listed", "event", "known"), AFTER.values(), ids=AFTER)
def test_what_is_not_known_has_to_be_fetched(
    kind: Any, listed: Any, event: Any, known: Knowledge
) -> None:
    """A full object makes it known; what an event shows may differ from it, or be all there is."""
    hand: Hand[Any] = Hand(kind)
    hand.listed(*([] if listed is None else [listed]))
    if listed is not None:
        assert hand.get("a").knowledge is KNOWN
        assert not hand.get("a").needs_fetch
    hand.saw(event)
    assert hand.get("a").knowledge is known
    assert hand.get("a").needs_fetch is (known is not KNOWN)


def test_a_status_that_somebody_else_may_have_written_is_unknown() -> None:
    """The view of the spec stays, the status is forgotten; the next full object shows both."""
    hand = Hand(sandbox_kind())
    hand.listed(sandbox("a", 10))
    hand.saw(partial("MODIFIED", meta("a", 11, generation=1, managedFields=None)))
    assert hand.get("a").view is not None
    assert hand.get("a").knowledge is Knowledge.UNKNOWN
    hand.learn(sandbox("a", 12))
    assert hand.get("a").knowledge is Knowledge.KNOWN
