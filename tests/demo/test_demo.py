"""Laws of the demo: it reaches everything it promises and its bill adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lean_sandbox.cli import main
from lean_sandbox.config.sources import EXIT_OK


@pytest.mark.timeout(120)
def test_all_acts_are_played_and_billed(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has the steps, the launch and the burst, without a conflict in any of them."""
    asked = ["demo", "--sandboxes", "2", "--pool", "3", "--claims", "2", "--output", "json"]
    assert main(asked) == EXIT_OK
    account: dict[str, Any] = json.loads(capsys.readouterr().out)
    launch, burst = account["launch"], account["burst"]
    assert len(account["steps"]) == 5
    assert all(step["bill"]["writes"] >= 2 for step in account["steps"])
    assert (launch["sandboxes"], launch["bill"]["conflicts"]) == (2, 0)
    assert launch["bill"]["requests"]["create pods"] == 2
    assert launch["watch_events"]["pods"]["passed"] >= 2
    assert (burst["pool"], burst["claims"], burst["bill"]["conflicts"]) == (3, 2, 0)
    assert 0 < burst["bind_p50_s"] <= burst["bind_p99_s"]
    assert burst["bill"]["requests"]["patch sandboxclaims/status"] == 2
    assert burst["bill"]["requests"]["create sandboxes"] == 2
    assert burst["bill"]["passes"]["sandboxclaim"] >= 2
    # Events come late, and wait for more urgent requests: an act lasts until they are there.
    assert launch["bill"]["event_posts"] == launch["bill"]["requests"]["create events"] == 4
    bill = burst["bill"]
    assert bill["writes"] + bill["reads"] + bill["event_posts"] == sum(bill["requests"].values())
    assert bill["event_posts"] == 6
