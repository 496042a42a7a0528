"""Laws of the kubelet's pure decisions: starts, endings, scripted troubles, deletions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from lean_sandbox.local.kubelet.pods import (
    Delay,
    KubeletSettings,
    PodStep,
    PodView,
    condition,
    condition_is,
    next_step,
)
from tests.local.kubelet.life import SETTINGS, Life, pod
from tests.support.clock import EPOCH

FULL_START = ["waiting", "network", "running", "ready"]
STARTED = {"startTime": "2026-01-02T03:04:05Z"}


def container(name: str = "main") -> dict[str, Any]:
    """Build a container."""
    return {"name": name, "image": "nginx:1"}


def test_a_plain_pod_is_ready_after_the_four_writes_of_a_real_kubelet() -> None:
    """Waiting, network, running, ready; then nothing more."""
    life = Life(pod()).run()
    assert life.steps == FULL_START
    assert life.planned() is None
    assert life.is_ready
    assert life.pod.status.phase == "Running"


def test_a_start_from_any_step_continues_where_it_stopped() -> None:
    """All progress is in the Pod: a kubelet that starts anew plans the same next step."""
    life = Life(pod())
    for expected in FULL_START:
        again = Life(life.pod)
        assert again.step()
        assert again.steps == [expected]
        life.step()


def test_conditions_of_other_writers_survive_every_write() -> None:
    """A foreign condition is handed back field by field, unknown fields included."""
    foreign = {"type": "example.com/x", "status": "True", "observedGeneration": 7, "odd": [1]}
    life = Life(pod(status={"conditions": [foreign]})).run()
    assert condition(life.pod.status, "example.com/x") == foreign


def test_a_pod_with_a_readiness_gate_waits_for_it() -> None:
    """Containers are ready, the Pod is not, until another writer opens the gate."""
    gate = "example.com/gate"
    life = Life(pod(readinessGates=[{"conditionType": gate}])).run()
    assert not life.is_ready
    assert condition_is(life.pod.status, "ContainersReady", "True")
    opened = {"type": gate, "status": "True"}
    life.pod = _with_conditions(life, (*life.pod.status.conditions, opened))
    assert life.run().is_ready
    closed = {"type": gate, "status": "False"}
    others = (c for c in life.pod.status.conditions if c["type"] != gate)
    life.pod = _with_conditions(life, (*others, closed))
    assert not life.run().is_ready


def test_init_containers_are_done_before_containers_run() -> None:
    """Initialized turns True with the start of the containers; sidecars keep running."""
    inits = [container("prepare"), {**container("sidecar"), "restartPolicy": "Always"}]
    life = Life(pod(initContainers=inits))
    life.step()
    assert condition_is(life.pod.status, "Initialized", "False")
    life.run()
    assert condition_is(life.pod.status, "Initialized", "True")
    prepare, sidecar = life.pod.status.initContainerStatuses
    assert prepare.ended is not None
    assert sidecar.is_running


def test_a_never_ready_pod_runs_and_stays_unready() -> None:
    """The message of its conditions names the containers."""
    life = Life(pod(container("a"), container("b"), script={"ready-delay": "true"})).run()
    assert life.steps == FULL_START[:3]
    assert life.pod.status.phase == "Running"
    assert not life.is_ready
    message = condition(life.pod.status, "Ready")["message"]
    assert message == "containers with unready status: [a b]"


def test_readiness_is_lost_when_the_script_says_so() -> None:
    """Once, and the Pod stays unready."""
    life = Life(pod(script={"unready-after": "5s"})).run()
    assert life.steps == [*FULL_START, "unready"]
    assert 5 <= life.elapsed_s < 6
    assert life.planned() is None


def test_a_missing_image_flaps_between_error_and_backoff() -> None:
    """ErrImagePull and ImagePullBackOff in turn, phase Pending, waits that double."""
    life = Life(pod(script={"image-pull-error": "true"})).run(8)
    assert life.steps == ["waiting", "network", *["pull-error", "pull-backoff"] * 3]
    assert life.pod.status.phase == "Pending"
    (waiting,) = life.pod.status.containerStatuses
    assert waiting.waits_for == "ImagePullBackOff"
    # With what came of the last attempt, as kubelets say it.
    text = 'Back-off pulling image "nginx:1": ErrImagePull: failed to pull image "nginx:1": rpc'
    assert str(waiting.state["waiting"]["message"]).startswith(text)
    first = Life(pod(script={"image-pull-error": "true"})).run(4).planned()
    later = life.planned()
    assert first is not None
    assert later is not None
    assert first.delay.base_s < later.delay.base_s


def test_a_pull_that_heals_starts_the_pod() -> None:
    """With a duration the image is there after it."""
    life = Life(pod(script={"image-pull-error": "30s"})).run()
    assert life.steps[-2:] == ["running", "ready"]
    assert life.is_ready
    assert 30 <= life.elapsed_s < 32


@pytest.mark.parametrize(
    ("end", "policy", "phase"),
    [
        ("complete-after", "Never", "Succeeded"),
        ("crash-loop", "Never", "Failed"),
        ("complete-after", "OnFailure", "Succeeded"),
    ],
)
def test_containers_that_end_complete_the_pod(end: str, policy: str, phase: str) -> None:
    """Exit code and restart policy decide the phase, after which nothing moves."""
    life = Life(pod(script={end: "2s"}, restartPolicy=policy)).run(4)
    assert life.is_ready
    life.run()
    assert 2 <= life.elapsed_s < 4
    assert life.pod.status.phase == phase
    assert life.planned() is None
    assert not life.is_ready
    reason = condition(life.pod.status, "Ready")["reason"]
    assert reason == ("PodCompleted" if phase == "Succeeded" else "PodFailed")


@pytest.mark.parametrize(
    ("policy", "end"), [("Always", "complete-after"), ("OnFailure", "crash-loop")]
)
def test_containers_that_must_not_end_crash_loop(policy: str, end: str) -> None:
    """Restarted at once the first time, then after waits of 10, 20, 40 seconds up to 5 minutes."""
    life = Life(pod(script={end: "3s"}, restartPolicy=policy)).run(6)
    assert life.steps == [*FULL_START, "exit", "restart"]
    (first,) = life.pod.status.containerStatuses
    assert (first.restartCount, "terminated" in first.lastState) == (1, True)
    waits: list[tuple[str, float]] = []
    while len(waits) < 7:
        assert life.step()
        if life.steps[-1] == "backoff":
            (held,) = life.pod.status.containerStatuses
            assert (held.waits_for, "terminated" in held.lastState) == ("CrashLoopBackOff", True)
            planned = life.planned()
            assert planned is not None
            waits.append((planned.name, planned.delay.base_s))
            said = str(held.state["waiting"]["message"])
            if len(waits) == 4:
                assert said == (
                    "back-off 1m20s restarting failed container=main pod=web_default(u-1)"
                )
    assert waits == [("restart", s) for s in (10, 20, 40, 80, 160, 300, 300)]
    assert life.pod.status.phase == "Running"
    assert life.pod.status.containerStatuses[0].restartCount == 7


def test_a_crash_loop_ends_a_pod_that_never_restarts() -> None:
    """With exit code 1."""
    life = Life(pod(script={"crash-loop": "3s"}, restartPolicy="Never")).run()
    assert life.pod.status.phase == "Failed"
    assert life.pod.status.containerStatuses[0].exit_code == 1


def test_an_evicted_pod_fails_for_that_reason() -> None:
    """Phase Failed, reason Evicted, DisruptionTarget set."""
    life = Life(pod(script={"evict-after": "4s"})).run()
    assert (life.pod.status.phase, life.pod.status.reason) == ("Failed", "Evicted")
    assert condition_is(life.pod.status, "DisruptionTarget", "True")
    assert life.planned() is None


def test_a_pod_past_its_active_deadline_fails() -> None:
    """Reason DeadlineExceeded."""
    life = Life(pod(activeDeadlineSeconds=3)).run()
    assert (life.pod.status.phase, life.pod.status.reason) == ("Failed", "DeadlineExceeded")


def test_a_ready_delay_adds_to_the_usual_one() -> None:
    """And nothing else changes."""
    plain = Life(pod()).run()
    life = Life(pod(script={"ready-delay": "1m"})).run()
    assert life.steps == plain.steps
    assert life.elapsed_s == pytest.approx(plain.elapsed_s + 60)


@pytest.mark.parametrize(
    ("start", "moves", "told"),
    [
        (pod(), 4, []),
        (
            pod(activeDeadlineSeconds=3),
            5,
            [("Normal", "DeadlineExceeded", "Pod was active on the")],
        ),
        (pod(script={"evict-after": "9"}), 5, [("Warning", "Evicted", "The node was low on")]),
        # Between the end of its container and the next start.
        (
            pod(script={"complete-after": "1", "evict-after": "2"}),
            6,
            [("Warning", "Evicted", "The node was low on")],
        ),
        (
            pod(script={"image-pull-error": "true"}),
            3,
            [("Warning", "Failed", 'Failed to pull image "nginx:1": rpc error')],
        ),
        (
            pod(script={"image-pull-error": "true"}),
            4,
            [("Normal", "BackOff", 'Back-off pulling image "nginx:1"')],
        ),
        (
            pod(script={"crash-loop": "9"}),
            9,
            [
                (
                    "Warning",
                    "BackOff",
                    "Back-off restarting failed container main in pod web_default(u-1)",
                )
            ],
        ),
    ],
)
def test_events_have_the_types_and_words_of_a_real_kubelet(
    start: PodView, moves: int, told: list[tuple[str, str, str]]
) -> None:
    """Warnings and notices as it tells them; a Pod that does well has none."""
    found = sorted(Life(start).run(moves).told)
    assert [(kind, reason) for kind, reason, _ in found] == [(k, r) for k, r, _ in told]
    assert all(
        note.startswith(start) for (_, _, note), (_, _, start) in zip(found, told, strict=True)
    )


def test_a_deletion_is_finished_within_its_grace_period() -> None:
    """The delay is the shorter of the kubelet's time and the grace period."""
    settings = KubeletSettings(termination=Delay(30.0, 10.0))
    meta = {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 5}
    step = next_step(pod(meta=meta, status=STARTED), settings, EPOCH)
    assert step is not None
    assert step.delay == Delay(5.0)


def test_a_pod_stops_as_long_as_its_script_says() -> None:
    """Within the grace period."""
    meta = {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 30}
    for asked, base_s in (("7s", 7), ("2m", 30), ("true", 30)):
        found = pod(meta=meta, status=STARTED, script={"termination-delay": asked})
        step = next_step(found, SETTINGS, EPOCH)
        assert step is not None
        assert step.delay.base_s == base_s


def test_a_pod_that_never_started_is_deleted_at_once() -> None:
    """Its kubelet has nothing to stop and no last phase to tell."""
    meta = {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 30}
    step = next_step(pod(meta=meta), SETTINGS, EPOCH)
    assert step is not None
    assert (step.name, step.delay) == ("delete", Delay())


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_a_deleted_pod_fails_before_it_is_removed(policy: str) -> None:
    """Killed with 137 whatever would restart it, unready, then one DELETE without another wait."""
    life = Life(pod(restartPolicy=policy)).run()
    assert life.is_ready
    step = _deleted(life)
    (container,) = life.pod.status.containerStatuses
    assert life.pod.status.phase == "Failed"
    assert container.exit_code == 137
    assert not life.is_ready
    assert (step.name, step.delay) == ("delete", Delay())


@pytest.mark.parametrize("last", ["exit", "backoff"])
@pytest.mark.parametrize(
    ("end", "code", "phase"), [("complete-after", 0, "Succeeded"), ("crash-loop", 1, "Failed")]
)
def test_a_deleted_pod_keeps_the_codes_its_containers_had(
    last: str, end: str, code: int, phase: str
) -> None:
    """A container that waits for its restart has ended already; its code decides the phase."""
    life = Life(pod(script={end: "1s"}, restartPolicy="Always"))
    while life.steps[-1:] != [last]:
        assert life.step()
    _deleted(life)
    (container,) = life.pod.status.containerStatuses
    assert container.ended is not None
    assert container.exit_code == code
    assert life.pod.status.phase == phase


def test_a_deletion_held_by_finalizers_is_not_asked_for_again() -> None:
    """With a grace period of zero the kubelet's part is done."""
    meta = {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 0}
    assert next_step(pod(meta=meta), SETTINGS, EPOCH) is None


def _deleted(life: Life) -> PodStep:
    """Delete the Pod of a life, let it end, and return what its kubelet does then."""
    meta = replace(
        life.pod.metadata,
        deletion_timestamp="2026-01-02T03:04:05Z",
        deletion_grace_period_seconds=30,
    )
    life.pod = replace(life.pod, metadata=meta)
    life.run()
    step = life.planned()
    assert step is not None
    return step


def _with_conditions(life: Life, conditions: tuple[dict[str, Any], ...]) -> PodView:
    return replace(life.pod, status=replace(life.pod.status, conditions=conditions))
