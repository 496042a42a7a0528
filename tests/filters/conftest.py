"""Settings for the laws that range over inputs."""

from __future__ import annotations

from hypothesis import settings

# A time limit for each example says nothing about a law and fails on a busy machine; the limit for
# the whole test stays.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
