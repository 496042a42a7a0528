"""Random stories, told in parts: the same ones in every run, others where new ones are looked for.

``SANDBOX_TESTS_SEED`` is that of the first part. With ``SANDBOX_TESTS_SHRINK`` a story that fails
is made as short as it can be.
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

__all__ = ["Stories"]

_PART = 50
# Making a failing story shorter takes minutes: that is for runs that are meant to take long.
_SHRINKS = "SANDBOX_TESTS_SHRINK" in os.environ
_ANY = str(random.SystemRandom().randrange(10**6) * 1000) if _SHRINKS else "0"
SEED = int(os.environ.get("SANDBOX_TESTS_SEED", _ANY))


class Stories:
    """So many stories of a kind, as an environment variable says."""

    def __init__(self, variable: str, default: int) -> None:
        """Without the variable, there are as many as ``default`` says."""
        self._variable = variable
        self._number = int(os.environ.get(variable, default))
        #: One after the other, or each in a process of its own.
        self.parts = range(-(-self._number // _PART))

    def tell(self, machine: type[RuleBasedStateMachine], part: int, *, acts: int) -> None:
        """Tell the stories of one part, each of at most so many acts."""
        phases = (Phase.explicit, Phase.generate, Phase.shrink)
        number = min(_PART, self._number - part * _PART)
        try:
            run_state_machine_as_test(
                seed(SEED + part)(type(machine.__name__, (machine,), {})),
                settings=settings(
                    max_examples=number,
                    stateful_step_count=acts,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                    phases=phases if _SHRINKS else phases[:-1],
                ),
            )
        except AssertionError as error:
            again = f"SANDBOX_TESTS_SEED={SEED + part} {self._variable}={number} tells it again"
            error.add_note(again)
            raise
