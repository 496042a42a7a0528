"""What may go wrong between a controller and its API server, and with either: rules for stories."""

from __future__ import annotations

import os
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import initialize, precondition, rule

from filters import parse_labels
from lean_sandbox.local.http.faults import Loss
from lean_sandbox.watch.kind import Representation
from tests.faults.acts import NAMESPACES
from tests.faults.breaks import Break, Grain
from tests.faults.edits import CLAIM, STOLEN, WHERE, WHICH, act
from tests.faults.oracle import CLAIMS
from tests.faults.scope import SELECTORS
from tests.faults.story import Story
from tests.faults.users import BEGUN, REPLICAS, Users

__all__ = ["Disturbances"]

Json = dict[str, Any]
# A restored store leads to states that the model of the end does not know yet: only by request.
# ``watch/test_restored_store.py`` has what is certain.
RESTORES = "SANDBOX_TESTS_RESTORES" in os.environ


def _requests(**by_verb: str) -> list[tuple[str, str]]:
    return [(verb, what) for verb, named in by_verb.items() for what in named.split()]


WRITES = _requests(
    create="pods sandboxes services persistentvolumeclaims networkpolicies",
    patch="pods services persistentvolumeclaims networkpolicies sandboxes sandboxes/status"
    " sandboxclaims sandboxclaims/status sandboxtemplates sandboxwarmpools/status",
    delete="pods services networkpolicies sandboxes sandboxclaims",
)
READS = _requests(
    get="pods sandboxes sandboxclaims sandboxwarmpools sandboxtemplates services"
    " persistentvolumeclaims networkpolicies",
    list="pods sandboxes sandboxclaims",
)
PLURALS = tuple(plural for verb, plural in READS if verb == "get")
REQUEST = st.sampled_from((*WRITES, *READS, READS[0], READS[1]))
# What most stories ask for: a fault of it is met.
COMMON = _requests(
    create="pods sandboxes",
    patch="sandboxes sandboxes/status sandboxclaims/status sandboxwarmpools/status",
    delete="sandboxes",
    get="pods sandboxes",
)
ANY = st.sampled_from((*COMMON, *[("*", "*")] * len(COMMON)))
PATCHES = st.sampled_from([one for one in WRITES if one[0] == "patch"])
PLURAL = st.sampled_from((*PLURALS, "pods", "sandboxes", "pods", "sandboxes"))
SHARE = st.sampled_from((0.0, 0.3, 0.9))


# A bound of ranges of the server's hash: each of the two shards has one namespace of stories.
BOUND = "0x4000000000000000"
# What operators set, alone or together; {} is the default.
_SET: tuple[Json, ...] = (
    {},
    {"sandbox_warm_pool_max_refill_rate": 0.2},
    {"sandbox_warm_pool_max_refill_rate": 3.0},
    {"sandbox_warm_pool_replenish_delay": 10.0},
    {"sandbox_write_behind_window": 2.0},
    {"sandbox_warm_pool_max_batch_size": 1},
    {"sandbox_warm_pool_readiness_grace_period": 30.0},
    {"sandbox_claim_warm_candidate_grace_period": 0.0},
    {"sandbox_claim_warm_candidate_grace_period": 20.0},
    {"sandbox_status_window": 2.0, "sandbox_status_step_window": 30.0},
    {"sandbox_concurrent_workers": 1, "sandbox_claim_concurrent_workers": 1},
    {"max_requests_in_flight": 2},
    {"watch_representation": Representation.METADATA},
    {"watch_representation": Representation.FULL},
    {"cache_label_selectors": True},
    {"enable_warm_pool_eviction": False, "disable_claim_observability_annotations": True},
    {"disable_claim_events": True, "disable_sandbox_events": True},
    {"namespaces": NAMESPACES},
    {"namespaces": NAMESPACES[:1]},
    {"exclude_namespaces": NAMESPACES[1:]},
)
# What a controller serves: in most stories everything.
_SERVED: tuple[Json, ...] = (
    *({},) * 6,
    {"shards": ("0/2", "1/2")},
    {"shards": (f"0/{BOUND}", f"1/{BOUND}")},
    {"extensions": False},
    *(
        {"extensions": False, "sandbox_label_selector": parse_labels(selector)}
        for selector in SELECTORS
    ),
)
# Options that say which namespaces are served: a controller takes one of them at most.
_DIVIDING = {"namespaces", "exclude_namespaces", "shards"}
OPTIONS = (
    st.tuples(st.sampled_from(_SERVED), st.sampled_from(_SET), st.sampled_from(_SET))
    .map(lambda chosen: {name: value for one in chosen for name, value in one.items()})
    .filter(lambda options: len(_DIVIDING & options.keys()) <= 1)
)
# All processes of the controller, or a shard.
WHO = st.sampled_from((None, 0, 1))


class Disturbances(Users):
    """Users and kubelets, and all that keeps a controller from seeing and doing what it should."""

    story: Story

    def __init__(self) -> None:
        """Start a world."""
        super().__init__()
        self.story = Story()

    @initialize(replicas=REPLICAS, begun=BEGUN, options=OPTIONS)
    def begin(self, replicas: int, begun: int, options: Json) -> None:
        """Begin with what an operator has set, and what there may be a backup of."""
        if options:
            self.story.restart(options)
        self.furnish(replicas, begun)
        self.story.save()

    # -- time ------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((-3600.0, -2.0, 2.0, 3600.0)))
    def leap(self, seconds: float) -> None:
        """Set the wall clock."""
        self.story.leap(seconds)

    @rule(seconds=st.sampled_from((3.0, 45.0, 400.0)))
    def freeze(self, seconds: float) -> None:
        """Stop the controller's process, as a debugger or a laptop's lid does.

        Whatever was due meanwhile is due at once then, the safety net among it.
        """
        self.story.excuse_net()
        self.story.disturb(f"nothing runs for {seconds} s", lambda: self.story.clock.leap(seconds))

    # -- faults ----------------------------------------------------------------------------------

    @rule(request=REQUEST, how=st.sampled_from((403, 429, 500, 503, Loss.RESET, Loss.SILENCE)))
    def fail(self, request: tuple[str, str], how: int | Loss) -> None:
        """Let a request fail, nothing done."""
        self.story.fail(*request, how, after=False)

    @rule(request=PATCHES)
    def conflict(self, request: tuple[str, str]) -> None:
        """Let a patch meet a conflict."""
        self.story.fail(*request, 409, after=False)

    @rule(
        request=st.sampled_from(WRITES), how=st.sampled_from((500, 504, Loss.RESET, Loss.SILENCE))
    )
    def lose(self, request: tuple[str, str], how: int | Loss) -> None:
        """Let a write be carried out and its answer be lost."""
        self.story.fail(*request, how, after=True)

    @rule(request=REQUEST, answers=st.sampled_from((True, True, False)))
    def hold(self, request: tuple[str, str], *, answers: bool) -> None:
        """Hold a request or its answer."""
        self.story.hold(*request, answers=answers)

    @act(which=WHICH)
    def let_go(self, which: int) -> None:
        """Let a held request go."""
        self.story.let_go(which)

    @rule(plural=PLURAL)
    def hold_events(self, plural: str) -> None:
        """Hold the events of a kind."""
        self.story.hold_events(plural)

    @act(which=WHICH, count=st.sampled_from((None, None, 1, 2)))
    def let_events_go(self, which: int, count: int | None) -> None:
        """Let held events go."""
        self.story.let_events_go(which, count)

    @act(lost=st.booleans())
    def cut(self, *, lost: bool) -> None:
        """Cut the watches, and perhaps forget the history."""
        self.story.disturb("watches are cut", self.story.plane.drop_watches)
        if lost:
            self.story.disturb("history is compacted", self.story.plane.compact)

    @rule(which=WHO)
    def restart(self, which: int | None) -> None:
        """Kill the controller, or a shard, and start another."""
        self.story.restart(which=which)

    @rule(which=WHO)
    def stop(self, which: int | None) -> None:
        """Kill the controller, or a shard; users go on without."""
        self.story.kill(which)

    @act()
    def start(self) -> None:
        """Start one, unless one runs."""
        self.story.start()

    @rule(options=OPTIONS)
    def restart_with(self, options: Json) -> None:
        """Kill the controller and start it with other options."""
        self.story.restart(options)

    @act(
        where=WHERE,
        which=WHICH,
        count=st.sampled_from((1, 10)),
        grace=st.sampled_from((0, 30)),
        name=CLAIM,
        is_new=st.booleans(),
    )
    def be_away(
        self, where: str, which: int, count: int, grace: int, name: str, *, is_new: bool
    ) -> None:
        """Let Pods go while no controller runs, and a claim wait for the next one."""
        story = self.story
        story.kill()
        for pod in story.names("pods", where)[which % 3 :][:count]:
            story.delete("pods", where, pod, grace_s=grace)
        if is_new:
            story.claim(where, name)
        else:
            story.patch(CLAIMS, where, name, {"status": {"conditions": [STOLEN]}}, "status")
        story.start()

    # -- the server ------------------------------------------------------------------------------

    @rule(
        request=st.sampled_from(COMMON),
        how=st.sampled_from((403, 409, 429, 500, 503, 504)),
        times=st.integers(2, 12),
    )
    def storm(self, request: tuple[str, str], how: int, times: int) -> None:
        """Let many such requests in a row be refused."""
        if how != 409 or request[0] in ("patch", "create"):
            self.story.fail(*request, how, after=False, times=times)

    @rule(plural=PLURAL, how=st.sampled_from((410, 429, 500, 503, 504)), times=st.integers(1, 3))
    def refuse_watches(self, plural: str, how: int, times: int) -> None:
        """Let the next watches be refused, and end those there are."""
        self.story.fail("watch", plural, how, after=False, times=times)
        self.break_watches(plural, Break.ENDED, None)

    @rule(plural=PLURAL, times=st.integers(1, 2))
    def expire_pages(self, plural: str, times: int) -> None:
        """Let the next pages of lists be too old, and have the kind listed anew."""
        self.story.expire_pages(plural, times)
        self.break_watches(plural, Break.GONE, None)

    @rule(forgets=st.booleans())
    def bookmark(self, *, forgets: bool) -> None:
        """Send nothing but bookmarks, and perhaps forget all that was before them."""
        self.story.disturb("bookmarks are sent", self.story.plane.bookmark_now)
        if forgets:
            self.story.moments(30)
            self.story.disturb("history is compacted", self.story.plane.compact)

    @rule()
    def save(self) -> None:
        """Take a backup of the store."""
        self.story.save()

    @precondition(lambda _: RESTORES)
    @act()
    def restore(self) -> None:
        """Restore the last one: versions go back."""
        self.story.restore()

    # -- the way there ---------------------------------------------------------------------------

    @rule(
        request=REQUEST, how=st.sampled_from((Break.RESET, Break.CLOSED, Break.MUTE)), share=SHARE
    )
    def break_answer(self, request: tuple[str, str], how: Break, share: float) -> None:
        """Break a connection in the midst of an answer."""
        self.story.disturb(
            f"the answer to the next {' '.join(request)} is {how.value} after {share:.0%}",
            lambda: self.story.proxy.break_answer(*request, how, share),
        )

    @rule(request=ANY, seconds=st.sampled_from((0.3, 3.0, 9.0, 12.0)), times=st.integers(1, 5))
    def delay(self, request: tuple[str, str], seconds: float, times: int) -> None:
        """Let answers come late, perhaps after their deadline."""
        self.story.disturb(
            f"the answers to the next {times} {' '.join(request)} take {seconds} s",
            lambda: self.story.proxy.delay(*request, seconds, times),
        )

    @rule(plural=PLURAL, how=st.sampled_from(Break), share=st.none() | SHARE)
    def break_watches(self, plural: str, how: Break, share: float | None) -> None:
        """Break the watches of a kind, at once or in the midst of the next line."""
        when = "now" if share is None else f"after {share:.0%} of what comes next"
        if how is Break.MUTE:
            self.story.excuse_net()
        self.story.disturb(
            f"the watch of {plural} is {how.value} {when}",
            lambda: self.story.proxy.break_watches(plural, how, share),
        )

    @rule(plural=PLURAL)
    def stall(self, plural: str) -> None:
        """Read no more of the watches of a kind."""
        self.story.disturb(
            f"the watch of {plural} is not read", lambda: self.story.proxy.stall(plural)
        )

    @act()
    def flow(self) -> None:
        """Read on."""
        self.story.disturb("all watches are read on", self.story.proxy.flow)

    @rule(grain=st.sampled_from(Grain))
    def grain(self, grain: Grain) -> None:
        """Let watches arrive in other pieces from now on."""
        self.story.disturb(
            f"watches arrive {grain.value}", lambda: setattr(self.story.proxy, "grain", grain)
        )

    @rule(how=st.sampled_from((Break.RESET, Break.CLOSED, Break.MUTE)))
    def drop_idle(self, how: Break) -> None:
        """End the connections that are kept for the next request.

        A list on a mute one takes half a minute, in which the safety net may look at what is late.
        """
        if how is Break.MUTE:
            self.story.excuse_net()
        self.story.disturb(
            f"idle connections are {how.value}", lambda: self.story.proxy.drop_idle(how)
        )

    @rule(seconds=st.sampled_from((0.0, 0.7, 5.0)))
    def go_away(self, seconds: float) -> None:
        """Reset all connections, and new ones for a while."""
        story = self.story
        story.disturb("the server is away", story.proxy.go_away)
        if seconds:
            story.time(seconds)
        story.disturb("it is back", lambda: setattr(story.proxy, "is_away", False))
