"""Replicas that follow each other while users and kubelets act: the end is as with one controller.

``SANDBOX_TESTS_RELAYS`` says how many stories are told, as ``tests/faults/telling.py`` tells them.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import initialize, invariant, rule

from tests.faults.acts import NAMESPACES
from tests.faults.edits import PAUSE
from tests.faults.oracle import CLAIMS, SANDBOXES
from tests.faults.telling import Stories
from tests.faults.users import BEGUN, REPLICAS, Users
from tests.manager.ends import ENDS
from tests.manager.relay import Handover, Relay
from tests.support.stored import owner_of

Json = dict[str, Any]
STORIES = Stories("SANDBOX_TESTS_RELAYS", 8)
ACTS = 12
HANDOVER = st.builds(
    Handover,
    end=st.sampled_from(ENDS),
    are_done=st.booleans(),
    moments=st.sampled_from((0, 10, 30, 100)),
    page_size=st.sampled_from((2, 250)),
)
BURST = st.lists(
    st.sampled_from(("claims", "members", "rollout", "modes", "labels", "pods", "kubelets")),
    min_size=1,
    max_size=3,
    unique=True,
)


class Relays(Users):
    """Users and kubelets act whoever leads, and while nobody does."""

    story: Relay

    def __init__(self) -> None:
        """Start two replicas."""
        super().__init__()
        self.story = Relay()
        self._left = 0
        self._first: tuple[Handover, list[str]]

    @initialize(
        replicas=REPLICAS, begun=BEGUN, after=st.integers(1, ACTS), how=HANDOVER, burst=BURST
    )
    def begin(self, replicas: int, begun: int, after: int, how: Handover, burst: list[str]) -> None:
        """Begin with what most stories need, and say when there is a hand-over in any case."""
        self.furnish(replicas, begun)
        self._left = after
        self._first = (how, burst)

    @invariant()
    def hand_over_once(self) -> None:
        """Let no story be without a hand-over."""
        self._left -= 1
        if self._left == 0:
            self.hand_over(*self._first, pause=0)

    @rule(how=HANDOVER, burst=BURST, pause=PAUSE)
    def hand_over(self, how: Handover, burst: list[str], pause: int) -> None:
        """End the leader in the midst of a burst."""
        self.story.hand_over(how, lambda: self._ask_for(burst))
        self.story.moments(pause)

    def _ask_for(self, burst: list[str]) -> None:
        story = self.story
        where = NAMESPACES[0]
        for what in burst:
            if what == "claims":
                for name in ("c", "d"):
                    story.claim(where, name)
            elif what == "members":
                self.scale(where=where, name="p", replicas=3, pause=0)
            elif what == "rollout":
                self.edit_template(where=where, image="alpine", pause=0)
            elif what == "modes":
                # Pools look after their members themselves.
                for name in story.names(SANDBOXES, where, _is_no_member):
                    self.set_mode(where=where, name=name, mode="Suspended", pause=0)
            elif what == "labels":
                for name in story.names(CLAIMS, where):
                    marks = {"label": "v1", "note": "v2", "is_valid": True}
                    self.edit_claim_metadata(where=where, name=name, **marks, pause=0)
            elif what == "pods":
                for name in story.names("pods", where):
                    story.delete("pods", where, name, grace_s=0)
            else:
                story.run_all()


def _is_no_member(sandbox: Json) -> bool:
    return bool(owner_of(sandbox).get("kind") != "SandboxWarmPool")


@pytest.mark.parametrize("part", STORIES.parts)
def test_whoever_leads_ends_what_another_has_begun(part: int) -> None:
    """All promises: each claim is bound once, and the end is as specified, whoever ends and how.

    At rest nothing is asked for, the next leader writes nothing, and no safety net caught anything.
    """
    STORIES.tell(Relays, part, acts=ACTS)
