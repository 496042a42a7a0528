"""Users, kubelets, garbage collector and failing networks in any order: the end is as specified.

``SANDBOX_TESTS_STORIES`` says how many stories are told, in parts. A story that fails is printed,
with the seed of its part: ``SANDBOX_TESTS_SEED`` tells the same ones again. With
``SANDBOX_TESTS_SHRINK`` it is made as short as it can be, with ``SANDBOX_TESTS_RESTORES`` the store
is restored from backups as well.
"""

from __future__ import annotations

import pytest

from tests.faults.disturbances import Disturbances
from tests.faults.telling import Stories

STORIES = Stories("SANDBOX_TESTS_STORIES", 100)


@pytest.mark.parametrize("part", STORIES.parts)
def test_every_story_ends_as_its_specification_asks(part: int) -> None:
    """Whatever the order of events, answers, faults and acts.

    At rest nothing is asked for, and a controller that starts anew writes nothing.
    """
    STORIES.tell(Disturbances, part, acts=25)
