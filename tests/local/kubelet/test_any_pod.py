"""Laws of the kubelet over all Pods that hypothesis can think of."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from lean_sandbox.local.kubelet.pods import PodStatus, PodView, condition_is
from tests.local.kubelet.life import Life, pod

# Troubles that never end by themselves: they may go on for ever, but only among these moves.
ENDLESS = frozenset(
    {"pull-error", "pull-backoff", "exit", "backoff", "restart", "ready", "unready"}
)
PHASES = frozenset({"Pending", "Running", "Succeeded", "Failed"})

seconds = st.sampled_from(["0", "1", "2.5s", "700ms", "1m", "nonsense", "-3"])
spells = st.one_of(st.sampled_from(["true", "false", ""]), seconds)
scripts = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        (
            *("ready-delay", "image-pull-error", "unready-after", "complete-after"),
            *("crash-loop", "evict-after", "termination-delay"),
        ),
        spells,
    ),
)


@st.composite
def containers(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw up to three containers; a Pod always has one."""
    count = draw(st.integers(1, 3))
    return [{"name": f"c{i}", "image": "nginx"} for i in range(count)]


odd_conditions = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["Ready", "PodScheduled", "example.com/x", ""])},
        optional={"status": st.sampled_from(["True", "False", "Unknown"]), "reason": st.just("x")},
    ),
    max_size=3,
)
odd_states = st.sampled_from(
    [
        {},
        {"waiting": {}},
        {"waiting": {"reason": "CrashLoopBackOff"}},
        {"running": {}},
        {"running": {"startedAt": "yesterday"}},
        {"terminated": {}},
        {"terminated": {"exitCode": 1}},
    ]
)
statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Pending", "Running", ""]),
        "startTime": st.sampled_from(["2026-01-02T03:04:05Z", "soon"]),
        "podIPs": st.just([{"ip": "10.1.1.1"}]),
        "podIP": st.just("10.1.1.1"),
        "conditions": odd_conditions,
        "containerStatuses": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["c0", "c1", "gone"]), "state": odd_states},
                optional={"ready": st.booleans(), "started": st.booleans()},
            ),
            max_size=3,
        ),
    },
)


def pods_with(status: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[PodView]:
    """Draw Pods whose status is drawn from ``status``."""
    return st.builds(
        lambda found, script, policy, status, deadline: pod(
            *found, script=script, status=status, restartPolicy=policy, **deadline
        ),
        containers(),
        scripts,
        st.sampled_from(["Always", "OnFailure", "Never"]),
        status,
        st.sampled_from([{}, {}, {"activeDeadlineSeconds": 5}]),
    )


CONTAINER = {"name": "c0", "image": "nginx"}
TWICE = [
    {"name": "c0", "state": {}},
    {"name": "c0", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "ready": True},
]

new_pods = pods_with(st.just({}))
odd_pods = pods_with(statuses)


@given(odd_pods)
@example(pod(CONTAINER, status={"containerStatuses": TWICE}))
def test_every_pod_comes_to_rest_or_repeats_a_known_trouble(start: PodView) -> None:
    """Each step writes something, and what is left after many steps is only flapping."""
    life = Life(start)
    for _ in range(60):
        if not life.step():
            return
    assert set(life.steps[-20:]) <= ENDLESS


@given(new_pods)
def test_every_status_written_is_valid(start: PodView) -> None:
    """Ready only with addresses and ready containers, one state a container, known phases."""
    life = Life(start)
    for _ in range(40):
        if not life.step():
            return
        assert_valid(life.pod.status)


@given(new_pods, st.integers(0, 6))
def test_a_deletion_stops_every_script(start: PodView, after: int) -> None:
    """Whatever a Pod plays, once it is deleted it ends, if it had started, and is removed."""
    life = Life(start).run(after)
    meta = replace(start.metadata, deletion_timestamp="2026-01-02T03:04:05Z")
    life.pod = replace(life.pod, metadata=meta)
    has_started = life.pod.status.startTime is not None
    had_ended = life.pod.status.is_terminal
    life.steps.clear()
    life.run()
    assert life.steps == (["stop"] if has_started and not had_ended else [])
    assert life.pod.status.is_terminal == has_started
    assert_valid(life.pod.status)
    step = life.planned()
    assert step is not None
    assert step.name == "delete"


def assert_valid(status: PodStatus) -> None:
    """Assert what any reader of a Pod's status takes for granted."""
    assert status.phase in PHASES
    kinds = [c["type"] for c in status.conditions]
    assert len(kinds) == len(set(kinds))
    if condition_is(status, "Ready", "True"):
        assert status.podIPs, "ready before it has an address"
        assert status.podIP == status.podIPs[0]["ip"]
        assert status.phase == "Running"
        assert all(c.ready for c in status.containerStatuses)
    for container in status.containerStatuses:
        assert len(container.state) <= 1
        assert container.is_running or not container.ready
        assert container.restartCount >= 0
