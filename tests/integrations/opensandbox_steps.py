"""What users of OpenSandbox do with its client: run by the Python of its environment.

The arguments: the server's address, and what an expired Sandbox becomes (``Delete``, ``Retain``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import SandboxFilter
from opensandbox.sync.manager import SandboxManagerSync
from opensandbox.sync.sandbox import SandboxSync

_SHORT = timedelta(seconds=1)
_LONG = timedelta(hours=1)


class Steps:
    """A manager and what it does, one step after the other."""

    def __init__(self, domain: str) -> None:
        self._config = ConnectionConfigSync(domain=domain, disable_metrics=True)
        self._manager = SandboxManagerSync.create(self._config)

    def create(self, team: str, timeout: timedelta | None = _LONG) -> str:
        """Create a sandbox; nothing listens in it, so its health is not asked for."""
        made = SandboxSync.create(
            "python:3.13",
            timeout=timeout,
            metadata={"team": team},
            env={"COLOUR": "blue"},
            connection_config=self._config,
            skip_health_check=True,
        )
        assert made.get_endpoint(8000).endpoint.endswith(":8000")
        self.until(made.id, "Running")
        return str(made.id)

    def state(self, one: str) -> str:
        """Return the state of a sandbox."""
        return str(self._manager.get_sandbox_info(one).status.state)

    def until(self, one: str, state: str) -> None:
        """Wait for a state; the test ends what never comes."""
        while self.state(one) != state:
            time.sleep(0.05)

    def until_refused(self, code: int, act: Callable[[str], Any], one: str) -> None:
        """Wait until an act is refused with a status of HTTP."""
        while not self.refused(code, act, one):
            time.sleep(0.05)

    def refused(self, code: int, act: Callable[[str], Any], one: str) -> bool:
        """Tell whether an act is refused with this status; another refusal is an error."""
        try:
            act(one)
        except SandboxApiException as refusal:
            if refusal.status_code != code:
                raise
            return True
        return False

    def found(self, team: str, *states: str) -> set[str]:
        """Return the sandboxes of a team, those of some states if any are given."""
        asked = SandboxFilter(metadata={"team": team}, states=list(states) or None, page_size=50)
        return {one.id for one in self._manager.list_sandbox_infos(asked).sandbox_infos}

    def life(self) -> None:
        """One sandbox from its creation to its end."""
        manager = self._manager
        one = self.create("red")
        info = manager.get_sandbox_info(one)
        assert info.metadata["team"] == "red"
        assert info.image.image == "python:3.13"
        renewed = manager.renew_sandbox(one, 2 * _LONG).expires_at
        assert renewed > info.expires_at
        assert abs(manager.get_sandbox_info(one).expires_at - renewed) < _SHORT
        assert manager.patch_sandbox_metadata(one, {"team": "green"}).metadata["team"] == "green"
        assert (self.found("red"), self.found("green")) == (set(), {one})
        assert self.refused(409, manager.resume_sandbox, one)
        manager.pause_sandbox(one)
        self.until(one, "Paused")
        assert self.refused(409, manager.pause_sandbox, one)
        assert (self.found("green", "Paused"), self.found("green", "Running")) == ({one}, set())
        manager.resume_sandbox(one)
        self.until(one, "Running")
        manager.kill_sandbox(one)
        self.until_refused(404, manager.get_sandbox_info, one)
        for act in (manager.pause_sandbox, manager.resume_sandbox, manager.kill_sandbox):
            assert self.refused(404, act, one)

    def ends(self, policy: str) -> None:
        """Sandboxes whose time ends while they run, and while they are paused; and one without."""
        manager = self._manager
        running = self.create("time")
        paused = self.create("time")
        endless = self.create("time", timeout=None)
        assert manager.get_sandbox_info(endless).expires_at is None
        manager.pause_sandbox(paused)
        self.until(paused, "Paused")
        for one in (running, paused):
            manager.renew_sandbox(one, _SHORT)
        for one in (running, paused):
            if policy == "Delete":
                self.until_refused(404, manager.get_sandbox_info, one)
            else:
                self.until(one, "Terminated")
                assert self.refused(409, manager.resume_sandbox, one)
                manager.kill_sandbox(one)
        assert self.state(endless) == "Running"
        manager.kill_sandbox(endless)

    def crowd(self, count: int = 8) -> None:
        """Several at once, listed, paused, resumed and deleted at once."""
        manager = self._manager
        with ThreadPoolExecutor(count) as pool:
            made = set(pool.map(lambda _: self.create("crowd"), range(count)))
            assert len(made) == count
            assert self.found("crowd", "Running") == made
            list(pool.map(manager.pause_sandbox, made))
            for one in made:
                self.until(one, "Paused")
            list(pool.map(manager.resume_sandbox, made))
            for one in made:
                self.until(one, "Running")
            list(pool.map(manager.kill_sandbox, made))
            for one in made:
                self.until_refused(404, manager.get_sandbox_info, one)


def main(domain: str, policy: str) -> None:
    """Take all steps."""
    steps = Steps(domain)
    steps.life()
    steps.ends(policy)
    steps.crowd()


if __name__ == "__main__":
    main(*sys.argv[1:])
