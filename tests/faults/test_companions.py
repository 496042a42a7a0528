"""Users, kubelets and controllers race companions in any order: nobody is harmed.

``SANDBOX_TESTS_COURTESIES`` says how many stories are told, in parts.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import initialize, rule

from lean_sandbox.config.options import COMPANIONS
from lean_sandbox.model.times import format_rfc3339
from tests.faults.acts import NAMESPACES
from tests.faults.courtesies import (
    ACTIVITY,
    LEAST,
    LIMIT,
    MOST,
    POLICY,
    ROLLING,
    TIMEOUT,
    Courtesies,
)
from tests.faults.edits import CLAIM, PAUSE, WHERE, WHICH, act
from tests.faults.process import Process
from tests.faults.story import Story
from tests.faults.telling import Stories
from tests.faults.users import IMAGE, REPLICAS, Users
from tests.support.extensions import settings
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES

Json = dict[str, Any]
STORIES = Stories("SANDBOX_TESTS_COURTESIES", 30)
DEFAULTS = "companions.lean-sandbox/claim-defaults"
STEPS = st.lists(st.sampled_from((0.3, 2.0, 10.0)), min_size=1, max_size=6)


class Accompanied(Story):
    """A story in which a process of companions works beside the controller."""

    def _equip(self, options: Json) -> None:
        super()._equip(options)
        told = settings(companions=COMPANIONS, idle_cpu=0.0)
        companions = Process(told, companions_only=True)
        self.processes.append(companions)
        self.courtesies = Courtesies(self.plane, companions.user)

    def end(self) -> list[str]:
        """Let time pass; return what companions should not have done."""
        for _ in range(4):
            self.run_all()
            self.time(30.0)
        return self.courtesies.rest()


class BesideCompanions(Users):
    """What users ask companions for, beside everything else that they do."""

    story: Accompanied

    def __init__(self) -> None:
        """Start a world."""
        super().__init__()
        self.story = Accompanied()

    @initialize(replicas=REPLICAS, wish=st.sampled_from(("1", "50%", "2")), which=WHICH)
    def begin(self, replicas: int, wish: str, which: int) -> None:
        """Begin with pools that are full, and with what leads to one of the companions."""
        self.furnish(replicas + 2, 2)
        where = NAMESPACES[0]
        match which % 5:
            case 0:
                self.renew(where, "alpine", wish, [0.3, 2.0, 2.0])
            case 1:
                self.leave_alone(where, which, SANDBOXES, SANDBOXES, 0, [2.0])
            case 2:
                self.fail(where, 0, "Succeeded" if replicas else "Failed")
            case 3:
                self.need(where, "4", 4, 1300.0)
            case _:
                self.claim_without(where=where, name="c", has_own=which > 4, between=60, pause=0)

    @rule(seconds=st.sampled_from((5.0, 15.0, 60.0, 330.0)))
    def wait(self, seconds: float) -> None:
        """Let so much time pass that companions act."""
        self.story.run_all()
        self.story.time(seconds)

    @act(where=WHERE, text=st.sampled_from(("1", "2", "34%", "100%", "many", None)))
    def ask_for_rollout(self, where: str, text: str | None) -> None:
        """Ask a pool to be renewed in steps, or no more."""
        self._note(POOLS, where, "p", {ROLLING: text})

    @act(
        where=WHERE,
        which=WHICH,
        kind=st.sampled_from((SANDBOXES, SANDBOXES, CLAIMS, TEMPLATES)),
        text=st.sampled_from(("5", "20", "300", "soon", None)),
    )
    def ask_for_suspension(self, where: str, which: int, kind: str, text: str | None) -> None:
        """Ask for a Sandbox to be suspended when it is idle, or no more."""
        self._note(kind, where, self._pick(kind, where, which), {TIMEOUT: text})

    @act(
        where=WHERE,
        which=WHICH,
        kind=st.sampled_from((SANDBOXES, SANDBOXES, CLAIMS)),
        after_s=st.sampled_from((-60, 0, 0, 60)),
    )
    def use(self, where: str, which: int, kind: str, after_s: int) -> None:
        """Renew the activity of a Sandbox."""
        at = format_rfc3339(self.story.true_time() + timedelta(seconds=after_s))
        self._note(kind, where, self._pick(kind, where, which), {ACTIVITY: at})

    @act(
        where=WHERE,
        least=st.sampled_from(("0", "2", "9", None)),
        most=st.sampled_from(("1", "3", "many", None)),
    )
    def ask_for_size(self, where: str, least: str | None, most: str | None) -> None:
        """Name bounds of a pool, or take them off."""
        self._note(POOLS, where, "p", {LEAST: least, MOST: most})

    @act(
        where=WHERE,
        which=WHICH,
        limit=st.sampled_from(("1", "2", "none", None)),
        policy=st.sampled_from(("Recreate", "Recreate", "Ignore", None)),
    )
    def ask_for_next_pods(
        self, where: str, which: int, limit: str | None, policy: str | None
    ) -> None:
        """Ask for failed Pods to be made anew."""
        name = self._pick(SANDBOXES, where, which)
        self._note(SANDBOXES, where, name, {POLICY: policy, LIMIT: limit})

    @act(
        where=WHERE,
        text=st.sampled_from(
            ('{"shutdownPolicy": "Retain", "unboundSeconds": 20}', '{"lifetimeSeconds": 600}', "{")
        ),
    )
    def ask_for_defaults(self, where: str, text: str) -> None:
        """Give claims of a pool a lifecycle."""
        self._note(POOLS, where, "p", {DEFAULTS: text})

    @act(where=WHERE, which=WHICH, is_kept=st.booleans())
    def set_lifecycle(self, where: str, which: int, *, is_kept: bool) -> None:
        """Give a claim a lifecycle, or take it away again."""
        lifecycle = {"shutdownPolicy": "Retain"} if is_kept else None
        name = self._pick(CLAIMS, where, which)
        self._patch(CLAIMS, where, name, {"spec": {"lifecycle": lifecycle}})

    # What leads to each of them, in one act: of so many acts few would come together by chance.

    @rule(where=WHERE, image=IMAGE, wish=st.sampled_from(("1", "2", "34%")), steps=STEPS)
    def renew(self, where: str, image: str, wish: str, steps: list[float]) -> None:
        """Change the template of a pool that asks for a rollout, and let kubelets go on."""
        spec = {"updateStrategy": {"type": "OnReplenish"}, "replicas": 4}
        self._patch(POOLS, where, "p", {"spec": spec})
        self._note(POOLS, where, "p", {ROLLING: wish})
        self._live(5.0, 5.0)
        self.story.edit_image(where, image)
        self._live(*steps)

    @rule(
        where=WHERE,
        most=st.sampled_from(("1", "4")),
        size=st.sampled_from((0, 2, 4)),
        seconds=st.sampled_from((30.0, 1300.0)),
    )
    def need(self, where: str, most: str, size: int, seconds: float) -> None:
        """Let claims come for a pool with bounds, and give it a size that they do not ask for."""
        self._note(POOLS, where, "p", {LEAST: "1", MOST: most})
        for name in ("c", "d"):
            self.story.claim(where, name)
            self._live(2.0)
        self._patch(POOLS, where, "p", {"spec": {"replicas": size}})
        self._live(15.0, seconds, 62.0)

    @rule(
        where=WHERE,
        which=WHICH,
        kind=st.sampled_from((SANDBOXES, TEMPLATES)),
        of=st.sampled_from((SANDBOXES, CLAIMS)),
        after_s=st.sampled_from((0, 10)),
        steps=STEPS,
    )
    def leave_alone(
        self, where: str, which: int, kind: str, of: str, after_s: int, steps: list[float]
    ) -> None:
        """Ask for suspension after a while, use it once, and let time pass."""
        self._note(kind, where, self._pick(kind, where, which), {TIMEOUT: "20"})
        self._live(12.0)
        self.use(where=where, which=which, kind=of, after_s=after_s, pause=0)
        self._live(12.0, *steps)

    @rule(
        where=WHERE,
        # The first Pod is mostly that of a Sandbox which no pool has.
        which=st.just(0) | WHICH,
        phase=st.sampled_from(("Failed", "Failed", "Succeeded")),
    )
    def fail(self, where: str, which: int, phase: str) -> None:
        """Let Pods of Sandboxes that ask for the next one end, more often than they permit."""
        for name in self.story.names(SANDBOXES, where):
            self._note(SANDBOXES, where, name, {POLICY: "Recreate", LIMIT: "1"})
        for _ in range(2):
            self.story.finish_pod(where, which, phase)
            self._live(25.0)

    @act(where=WHERE, name=CLAIM, has_own=st.booleans(), between=PAUSE)
    def claim_without(self, where: str, name: str, *, has_own: bool, between: int) -> None:
        """Claim of a pool with defaults, and write a lifecycle, or take that of the pool off."""
        text = '{"shutdownPolicy": "Delete", "ttlSecondsAfterFinished": 600}'
        self._note(POOLS, where, "p", {DEFAULTS: text})
        self.story.claim(where, name)
        self.story.moments(between)
        lifecycle = {"shutdownPolicy": "Retain"} if has_own else None
        if not has_own:
            self._live(5.0)
        taken_off = {"annotations": {f"{DEFAULTS}-applied": None}}
        body = {"spec": {"lifecycle": lifecycle}, "metadata": taken_off}
        self._patch(CLAIMS, where, name, body)
        self._live(5.0)

    def _live(self, *steps: float) -> None:
        for seconds in steps:
            self.story.time(seconds)
            self.story.run_all()

    @rule(seconds=st.sampled_from((0.0, 20.0)))
    def restart_companions(self, seconds: float) -> None:
        """Let the companions be away for a while."""
        self.story.kill(1)
        self.story.time(seconds)
        self.story.courtesies.forget()
        self.story.start()

    def _note(self, kind: str, where: str, name: str, notes: Json) -> None:
        self._patch(kind, where, name, {"metadata": {"annotations": notes}})


@pytest.mark.parametrize("part", STORIES.parts)
def test_companions_keep_their_promises_in_every_story(part: int) -> None:
    """Whatever the order of acts and events; see ``courtesies.py``."""
    STORIES.tell(BesideCompanions, part, acts=25)
