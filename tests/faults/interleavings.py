"""A story as one machine: users, kubelets, garbage collector and failing networks."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import initialize

from tests.faults.disturbances import OPTIONS, Disturbances
from tests.faults.edits import CLAIM, STOLEN, WHERE, WHICH, act
from tests.faults.oracle import CLAIMS
from tests.faults.users import BEGUN, REPLICAS

Json = dict[str, Any]


class Interleavings(Disturbances):
    """Anything that happens in a cluster, at any moment."""

    @initialize(replicas=REPLICAS, begun=BEGUN, options=OPTIONS)
    def begin(self, replicas: int, begun: int, options: Json) -> None:
        """Begin with what an operator has set, and what there may be a backup of."""
        if options:
            self.story.restart(options)
        self.furnish(replicas, begun)
        self.story.save()

    @act(
        where=WHERE,
        which=WHICH,
        count=st.sampled_from((1, 10)),
        grace=st.sampled_from((0, 30)),
        name=CLAIM,
        is_new=st.booleans(),
    )
    def be_away(
        self, where: str, which: int, count: int, grace: int, name: str, *, is_new: bool
    ) -> None:
        """Let Pods go while no controller runs, and a claim wait for the next one."""
        story = self.story
        story.kill()
        for pod in story.names("pods", where)[which % 3 :][:count]:
            story.delete("pods", where, pod, grace_s=grace)
        if is_new:
            story.claim(where, name)
        else:
            story.patch(CLAIMS, where, name, {"status": {"conditions": [STOLEN]}}, "status")
        story.start()
