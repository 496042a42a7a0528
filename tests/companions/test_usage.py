"""Since when a Pod is quiet, by samples of its CPU."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lean_sandbox.companions.usage import SAMPLE_S, PodMetrics, PodUsage, cores_of
from lean_sandbox.kube.resources import Page
from lean_sandbox.watch.kind import Key

POD = Key("ns", "p")


class Samples:
    """A client that answers lists of samples with what the test sets: the cores of the Pod."""

    def __init__(self) -> None:
        self.cpu: str | None = "1m"
        self.asked: list[str | None] = []

    async def list(self, *_: object, namespace: str | None, **_more: object) -> Any:
        """Return the samples, as of a server of them."""
        self.asked.append(namespace)
        metadata = {"namespace": POD.namespace, "name": POD.name}
        containers = [{"usage": {"cpu": self.cpu}}, {"usage": None}]
        items = [] if self.cpu is None else [{"metadata": metadata, "containers": containers}]
        return msgspec.convert({"items": items}, Page[PodMetrics])


def usage(*namespaces: str) -> tuple[Samples, PodUsage]:
    """Return samples and what follows them; 20 thousandths of a core are use."""
    samples: Any = Samples()
    return samples, PodUsage(samples, namespaces, 0.02)


async def test_a_pod_is_quiet_since_its_first_sample_or_its_last_use() -> None:
    """The threshold itself is use."""
    samples, found = usage()
    for at, cpu, since in (
        (0.0, "1m", 0.0),
        (60.0, "19m", 0.0),
        (120.0, "20m", 120.0),
        (180.0, "19999u", 120.0),
        (240.0, "1", 240.0),
    ):
        samples.cpu = cpu
        assert await found.sample(at) == SAMPLE_S
        assert found.quiet_since(POD, at) == since


@pytest.mark.parametrize(("gap_s", "since"), [(60.0, 0.0), (180.0, 0.0), (180.5, 180.5)])
async def test_a_gap_of_more_than_three_samples_begins_anew(gap_s: float, since: float) -> None:
    """Nobody knows what was used meanwhile, whether samples were taken or the Pod had none."""
    _, found = usage()
    await found.sample(0.0)
    await found.sample(gap_s)
    assert found.quiet_since(POD, gap_s) == since
    samples, found = usage()
    await found.sample(0.0)
    samples.cpu = None
    await found.sample(gap_s / 2)
    samples.cpu = "1m"
    await found.sample(gap_s)
    assert found.quiet_since(POD, gap_s) == since


@pytest.mark.parametrize(("age_s", "is_known"), [(0.0, True), (90.0, True), (90.5, False)])
async def test_a_sample_says_something_for_a_minute_and_a_half(
    age_s: float, *, is_known: bool
) -> None:
    """Later nothing is known of the Pod, as of one that has none."""
    _, found = usage()
    await found.sample(0.0)
    assert (found.quiet_since(POD, age_s) is not None) is is_known
    assert found.quiet_since(Key("ns", "q"), 0.0) is None


async def test_what_is_gone_is_forgotten() -> None:
    """After the longest time that is no gap, so that names of Pods do not add up."""
    samples, found = usage()
    await found.sample(0.0)
    samples.cpu = None
    await found.sample(180.0)
    assert len(found._quiet) == 1
    await found.sample(180.5)
    assert len(found._quiet) == 0


@pytest.mark.parametrize(
    ("namespaces", "asked"), [((), [None]), (("a",), ["a"]), (("a", "b"), ["a", "b"])]
)
async def test_each_namespace_that_is_watched_is_asked_for(
    namespaces: tuple[str, ...], asked: list[str | None]
) -> None:
    """Or all of them at once."""
    samples, found = usage(*namespaces)
    await found.sample(0.0)
    assert samples.asked == asked


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        *(("0", 0.0), ("20m", 0.02), ("20000000n", 0.02), ("1500u", 0.0015), ("2", 2.0)),
        *((text, float("inf")) for text in ("", "-1", "-1n", "much", "1000000001")),
        ("1000000000", 1e9),
    ],
)
def test_cpu_is_read_in_every_unit(text: str, cores: float) -> None:
    """What cannot be read, or is more than any machine has, counts as use."""
    assert cores_of(text) == pytest.approx(cores)
