"""Counters are read from metrics, and their differences are costs."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.bench.controller import Cost, read_metrics

_OURS = """\
# HELP lean_sandbox_requests_total Finished requests.
# TYPE lean_sandbox_requests_total counter
lean_sandbox_requests_total{verb="patch",resource="sandboxes.agents.x-k8s.io/status",code="200"} 7
lean_sandbox_requests_total{verb="create",resource="events.events.k8s.io",code="201"} 3
lean_sandbox_requests_total{verb="create",resource="pods",code="409"} 2
lean_sandbox_requests_total{verb="get",resource="pods",code="200"} 5
lean_sandbox_requests_total{verb="list",resource="pods",code="200"} 1
lean_sandbox_requests_total{verb="watch",resource="pods",code="200"} 9
lean_sandbox_requests_total{verb="update",resource="leases.coordination.k8s.io",code="200"} 99
lean_sandbox_client_bytes_total{direction="received"} 2048
lean_sandbox_client_bytes_total{direction="sent"} 77
lean_sandbox_safety_net_total{controller="sandbox"} 1
lean_sandbox_safety_net_total{controller="sandboxclaim"} 2
process_cpu_seconds_total 1.5
process_resident_memory_bytes 4.194304e+07
rest_client_requests_total{code="200",method="GET",host="h"} 15
"""
_OTHERS = """\
rest_client_requests_total{code="200",host="10.96.0.1:443",method="PUT"} 4
rest_client_requests_total{code="409",host="10.96.0.1:443",method="POST"} 2
rest_client_requests_total{code="200",host="10.96.0.1:443",method="GET"} 6
"""


def test_our_metrics_tell_requests_by_verb_and_kind() -> None:
    """Watches and Leases are not counted; writes leave Events out; a 409 is a conflict."""
    cost = read_metrics(_OURS).since(Cost(Counter(), 0.0, cpu_ms=0.0, caught=1.0))
    assert cost.by_kind() == {
        "patch sandboxes/status": 7,
        "get pods": 5,
        "create events": 3,
        "create pods": 2,
        "list pods": 1,
    }
    assert (cost.total, cost.without_events, cost.writes) == (18, 15, 9)
    assert (cost.gets, cost.lists, cost.conflicts) == (5, 1, 2)
    assert cost.failures() == {"409 create pods": 2}
    assert (cost.received_kib, cost.cpu_ms, cost.rss_mib) == (2.0, 1500.0, 40.0)
    assert cost.caught == 2


def test_metrics_of_another_controller_tell_methods_only() -> None:
    """What needs kinds is not measured; writes and conflicts still are."""
    cost = read_metrics(_OTHERS).since(Cost(Counter()))
    assert cost.by_kind() == {"get *": 6, "update *": 4, "create *": 2}
    assert (cost.total, cost.writes, cost.conflicts) == (12, 6, 2)
    assert (cost.without_events, cost.gets, cost.lists) == (None, None, None)
    assert cost.received_kib is None


def test_metrics_without_counters_measure_nothing() -> None:
    """An endpoint of something else gives None everywhere, never zero."""
    cost = read_metrics("up 1\n").since(read_metrics("up 1\n"))
    assert (cost.total, cost.writes, cost.conflicts, cost.cpu_ms) == (None, None, None, None)
    assert cost.by_kind() == {}


_REQUESTS = st.dictionaries(
    st.tuples(
        st.sampled_from(["get", "list", "create", "patch"]),
        st.sampled_from(["pods", "events", "sandboxes"]),
        st.sampled_from(["200", "404", "409"]),
    ),
    st.integers(min_value=0, max_value=50),
)


@given(_REQUESTS, _REQUESTS)
def test_a_cost_is_what_was_added(
    before: dict[tuple[str, str, str], int], added: dict[tuple[str, str, str], int]
) -> None:
    """Whatever was counted before, the difference is what came after, by every way of counting."""
    first = Counter(before)
    cost = Cost(first + Counter(added)).since(Cost(first))
    assert cost.total == sum(added.values())
    assert sum(cost.by_kind().values()) == cost.total
    events = sum(number for (_, kind, _), number in added.items() if kind == "events")
    assert cost.without_events == sum(added.values()) - events
    assert cost.conflicts == sum(n for (_, _, code), n in added.items() if code == "409")
    failed = {code: n for code, n in cost.failures().items() if n}
    assert sum(failed.values()) == sum(n for (_, _, code), n in added.items() if code != "200")
