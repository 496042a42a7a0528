"""Laws of the demo: it reaches everything it promises and its bill adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.cli import EXIT_OK, main
from lean_sandbox.demo.burst_bill import percentile

_CLAIMS = "sandboxclaims.extensions.agents.x-k8s.io"


def test_both_acts_are_played_and_billed(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has the steps, the launch and the burst, without a conflict in any of them."""
    asked = ["demo", "--sandboxes", "2", "--pool", "3", "--claims", "2", "--output", "json"]
    assert main(asked) == EXIT_OK
    bill: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert len(bill["steps"]) == 5
    assert (bill["sandboxes"], bill["conflicts"]) == (2, 0)
    burst = bill["burst"]
    assert (burst["pool"], burst["claims"], burst["conflicts"]) == (3, 2, 0)
    assert 0 < burst["bind_p50_s"] <= burst["bind_p99_s"]
    assert burst["requests"][f"patch {_CLAIMS}/status"] == 2
    assert burst["requests"]["create sandboxes.agents.x-k8s.io"] == 2
    assert burst["passes"]["sandboxclaim"] >= 2
    counted = burst["writes"] + burst["reads"] + burst["event_posts"]
    assert counted == sum(burst["requests"].values())


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(1, 100))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(
    values: list[float], rank: float
) -> None:
    """It is one of the values, and at least ``rank`` percent of them are no greater."""
    found = percentile(values, rank)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * rank / 100 - 1e-9


def test_a_percentile_of_nothing_is_zero() -> None:
    """No claims, no latency."""
    assert percentile([], 50) == 0.0
