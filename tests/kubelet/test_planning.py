"""Laws of the kubelet's pure decisions: starts, endings, scripted troubles, deletions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from lean_sandbox.local.kubelet_settings import Delay, KubeletSettings, WritesPerStart
from lean_sandbox.local.pods import Step, StepKind, next_step
from lean_sandbox.local.podview import PodStatus, PodView, condition, condition_is
from tests.kubelet.life import Life, pod
from tests.support.clock import EPOCH

FULL_START = ["waiting", "network", "running", "ready"]
STARTED = {"startTime": "2026-01-02T03:04:05Z"}
BRIEF = KubeletSettings(writes_per_start=WritesPerStart.ONE)


def container(name: str = "main", image: str = "nginx:1", *command: str) -> dict[str, Any]:
    """Build a container."""
    return {"name": name, "image": image, "command": list(command)}


def shell(text: str) -> dict[str, Any]:
    """Build a container that runs a shell text."""
    return container("main", "busybox", "sh", "-c", text)


def test_a_plain_pod_is_ready_after_the_four_writes_of_a_real_kubelet() -> None:
    """Waiting, network, running, ready; then nothing more."""
    life = Life(pod()).run()
    assert life.steps == FULL_START
    assert life.planned() is None
    assert life.is_ready
    assert life.pod.status.phase == "Running"


@pytest.mark.parametrize(("writes", "count"), [(w, int(w)) for w in WritesPerStart])
def test_compressed_starts_cost_the_writes_they_promise(writes: WritesPerStart, count: int) -> None:
    """The end of a start is the same, however many writes it takes."""
    full = Life(pod()).run()
    life = Life(pod(), KubeletSettings(writes_per_start=writes)).run()
    assert life.writes == count
    assert _without_times(life.pod.status) == _without_times(full.pod.status)


def test_a_compressed_start_waits_as_long_as_a_full_one() -> None:
    """Folding steps adds up their delays."""
    assert Life(pod(), BRIEF).run().elapsed_s == pytest.approx(Life(pod()).run().elapsed_s)


def test_a_pod_without_node_is_left_to_the_scheduler() -> None:
    """The kubelet has no step for it."""
    assert next_step(pod(node=""), KubeletSettings(), EPOCH) is None


def test_an_ignored_pod_is_left_alone() -> None:
    """Not even its deletion is finished."""
    deleting = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
    assert Life(pod(script={"ignore": "true"})).planned() is None
    assert Life(pod(script={"ignore": "true"}, meta=deleting)).planned() is None


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
    assert prepare.terminated is not None
    assert sidecar.is_running


def test_a_never_ready_pod_runs_and_stays_unready() -> None:
    """By annotation for all containers."""
    life = Life(pod(script={"never-ready": "true"})).run()
    assert life.steps == FULL_START[:3]
    assert life.pod.status.phase == "Running"
    assert not life.is_ready


def test_one_never_ready_container_holds_the_pod_back() -> None:
    """By image name for its container only."""
    life = Life(pod(container("a"), container("b", "registry.example/never-ready:2"))).run()
    assert [c.ready for c in life.pod.status.containerStatuses] == [True, False]
    assert not life.is_ready
    message = (condition(life.pod.status, "Ready") or {})["message"]
    assert message == "containers with unready status: [b]"


def test_readiness_is_lost_when_the_script_says_so() -> None:
    """Once without unready-for, and the Pod stays unready."""
    life = Life(pod(script={"unready-after": "5s"})).run()
    assert life.steps == [*FULL_START, "unready"]
    assert 5 <= life.elapsed_s < 6
    assert life.planned() is None


def test_readiness_flaps_with_unready_for() -> None:
    """It comes back after unready-for, and goes again."""
    life = Life(pod(script={"unready-after": "5s", "unready-for": "2s"})).run(8)
    assert life.steps == [*FULL_START, "unready", "ready", "unready", "ready"]


def test_a_missing_image_flaps_between_error_and_backoff() -> None:
    """ErrImagePull and ImagePullBackOff in turn, phase Pending, waits that double."""
    life = Life(pod(container("main", "nginx:does-not-exist"))).run(8)
    assert life.steps == ["waiting", "network", *["pull-error", "pull-backoff"] * 3]
    assert life.pod.status.phase == "Pending"
    assert life.pod.status.containerStatuses[0].waiting_reason == "ImagePullBackOff"
    first = Life(pod(container("main", "nginx:does-not-exist"))).run(4).planned()
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
    ("text", "policy", "phase"),
    [
        ("exit 0", "Never", "Succeeded"),
        ("exit 3", "Never", "Failed"),
        ("sleep 2; exit 0", "Never", "Succeeded"),
        ("sleep 2 && exit 1", "Never", "Failed"),
        ("exit 0", "OnFailure", "Succeeded"),
        ("true", "Never", "Succeeded"),
        ("false", "Never", "Failed"),
    ],
)
def test_commands_that_end_complete_the_pod(text: str, policy: str, phase: str) -> None:
    """Exit code and restart policy decide the phase, after which nothing moves."""
    life = Life(pod(shell(text), restartPolicy=policy)).run()
    assert life.pod.status.phase == phase
    assert life.planned() is None
    assert not life.is_ready
    reason = (condition(life.pod.status, "Ready") or {})["reason"]
    assert reason == ("PodCompleted" if phase == "Succeeded" else "PodFailed")


def test_a_sleeping_command_ends_when_it_has_slept() -> None:
    """Ready meanwhile."""
    life = Life(pod(shell("sleep 2; exit 0"), restartPolicy="Never"))
    life.run(4)
    assert life.is_ready
    life.run()
    assert 2 <= life.elapsed_s < 4


@pytest.mark.parametrize(("policy", "text"), [("Always", "exit 0"), ("OnFailure", "exit 1")])
def test_containers_that_must_not_end_crash_loop(policy: str, text: str) -> None:
    """Terminated, back-off, restarted with a higher count, waits that double."""
    life = Life(pod(shell(text), restartPolicy=policy)).run(16)
    assert life.steps[4:8] == ["exit", "backoff", "restart", "ready"]
    assert life.pod.status.phase == "Running"
    assert life.pod.status.containerStatuses[0].restartCount == 3
    assert "terminated" in life.pod.status.containerStatuses[0].lastState


def test_a_crash_loop_ends_a_pod_that_never_restarts() -> None:
    """By annotation."""
    script = {"crash-loop": "3s", "exit-code": "42"}
    life = Life(pod(script=script, restartPolicy="Never")).run()
    assert life.pod.status.phase == "Failed"
    assert (life.pod.status.containerStatuses[0].terminated or {})["exitCode"] == 42


def test_the_pod_ends_only_when_every_container_has() -> None:
    """The others stay ready; the Pod does not."""
    life = Life(
        pod(
            container("quick", "completes"),
            container("slow", "busybox", "sleep", "5"),
            restartPolicy="Never",
        )
    ).run(5)
    assert life.pod.status.phase == "Running"
    assert not life.is_ready
    assert life.run().pod.status.phase == "Succeeded"


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


@pytest.mark.parametrize("kind", ["heartbeat", "restarts"])
def test_churn_writes_what_does_not_matter(kind: str) -> None:
    """So many writes; phase, addresses and every other condition stay."""
    plain = Life(pod()).run()
    life = Life(pod(script={"churn": "7", "churn-interval": "1", "churn-kind": kind})).run()
    assert life.writes == 4 + 7
    assert life.is_ready
    assert life.pod.status.podIPs == plain.pod.status.podIPs
    ours = [c for c in life.pod.status.conditions if not c["type"].startswith("kubelet.")]
    assert ours == list(plain.pod.status.conditions)
    restarts = life.pod.status.containerStatuses[0].restartCount
    assert restarts == (7 if kind == "restarts" else 0)


def test_start_and_ready_delays_add_to_the_usual_ones() -> None:
    """And nothing else changes."""
    plain = Life(pod()).run()
    life = Life(pod(script={"start-delay": "3s", "ready-delay": "1m"})).run()
    assert life.steps == plain.steps
    assert life.elapsed_s == pytest.approx(plain.elapsed_s + 63)


def test_a_deletion_is_finished_within_its_grace_period() -> None:
    """The delay is the shorter of the kubelet's time and the grace period."""
    settings = KubeletSettings(termination=Delay(30.0, 10.0))
    meta = {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 5}
    step = next_step(pod(meta=meta, status=STARTED), settings, EPOCH)
    assert step is not None
    assert step.delay.base_s == 5
    assert step.delay.jitter_s == 0


def test_a_pod_that_never_started_is_deleted_at_once() -> None:
    """Its kubelet has nothing to stop and no last phase to tell."""
    meta = {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 30}
    step = next_step(pod(meta=meta), KubeletSettings(), EPOCH)
    assert step is not None
    assert (step.kind, step.delay) == (StepKind.DELETE, Delay())


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_a_deleted_pod_fails_before_it_is_removed(policy: str) -> None:
    """Killed with 137 whatever would restart it, unready, then one DELETE without another wait."""
    life = Life(pod(restartPolicy=policy)).run()
    assert life.is_ready
    step = _deleted(life)
    (container,) = life.pod.status.containerStatuses
    assert life.pod.status.phase == "Failed"
    assert (container.terminated or {})["exitCode"] == 137
    assert not life.is_ready
    assert (step.kind, step.delay) == (StepKind.DELETE, Delay())


@pytest.mark.parametrize("last", ["exit", "backoff"])
@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_a_deleted_pod_keeps_the_codes_its_containers_had(last: str, code: int, phase: str) -> None:
    """A container that waits for its restart has ended already; its code decides the phase."""
    script = {"complete-after": "1s", "exit-code": str(code)}
    life = Life(pod(script=script, restartPolicy="Always"))
    while life.steps[-1:] != [last]:
        assert life.step()
    _deleted(life)
    (container,) = life.pod.status.containerStatuses
    assert (container.terminated or {})["exitCode"] == code
    assert life.pod.status.phase == phase


def test_an_unbound_pod_is_deleted_at_once() -> None:
    """No kubelet has anything to stop."""
    meta = {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 30}
    step = next_step(pod(node="", meta=meta), KubeletSettings(), EPOCH)
    assert step is not None
    assert step.kind is StepKind.DELETE
    assert step.delay == Delay()


def test_a_deletion_held_by_finalizers_is_not_asked_for_again() -> None:
    """With a grace period of zero the kubelet's part is done."""
    meta = {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 0}
    assert next_step(pod(meta=meta), KubeletSettings(), EPOCH) is None


def _deleted(life: Life) -> Step:
    """Delete the Pod of a life, let it end, and return what its kubelet does then."""
    meta = replace(
        life.pod.metadata, deletionTimestamp="2026-01-02T03:04:05Z", deletionGracePeriodSeconds=30
    )
    life.pod = replace(life.pod, metadata=meta)
    life.run()
    step = life.planned()
    assert step is not None
    return step


def _with_conditions(life: Life, conditions: tuple[dict[str, Any], ...]) -> PodView:
    return replace(life.pod, status=replace(life.pod.status, conditions=conditions))


def _without_times(status: PodStatus) -> Any:
    """Return the status without the moments and the identities drawn from them."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                k: strip(v)
                for k, v in value.items()
                if k not in ("lastTransitionTime", "startedAt", "startTime")
            }
        return [strip(v) for v in value] if isinstance(value, list) else value

    return strip(msgspec.to_builtins(status))
