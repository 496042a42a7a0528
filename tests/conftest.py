"""Settings shared by all tests."""

from __future__ import annotations

from hypothesis import settings

# A loaded machine is no reason to fail: the time limit of each test is the guard.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")
