"""Changes the product in one place after another: each time a test has to fail.

What no test notices is printed, and makes the run fail, unless ``equivalent.txt`` says why nothing
can notice it. The sample of a day fails if more than a third of its changes goes unnoticed: whoever
lands a change of something else should not have to write the tests that it asks for. It never fails
for that while it is not recorded what all tests run.
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.judge import TYPES, Judge, Verdict
from tests.mutants.reach import Reach, folders_of, record, unrecorded
from tests.mutants.sites import Site, equivalent, every_site, sites_of

__all__ = ["DEADLY", "main"]

DEADLY = (
    "lean_sandbox/runtime/queue.py WorkQueue.add: "
    "drop self._admit(key, rank, (reason,), cause, after_s) => pass"
)
"""A change that any test of a controller notices: if none does, nothing is noticed at all."""
_SAMPLE = 60
_SAMPLE_S = 150.0
_MOST_LIVING_IN_SAMPLE = 1 / 3
_AT_ONCE = 400
"""So many changes stand in one copy: with more, its modules become slow."""

Chooser = Callable[[Site], tuple[list[str], float]]
"""Returns the tests of a change, and for how many seconds of CPU they ran without it."""


class Run:
    """Judges changes, as many at a time as there are processors, and tells of each."""

    def __init__(self, tests: Chooser, judged: Path | None) -> None:
        """Append to a file, if one is given, what is judged; it is not judged again."""
        self._tests = tests
        self._judged = judged
        self.caught: dict[str, str] = {}
        self.living: list[str] = []

    def judge(self, chosen: Sequence[Site], ends_at: float) -> None:
        """Judge changes in their order; none is begun after ``ends_at``, or after Ctrl-C."""
        done = set()
        if self._judged is not None and self._judged.exists():
            done = {line[8:] for line in self._judged.read_text("utf-8").splitlines()}
        left = [site for site in chosen if site.name not in done]
        with suppress(KeyboardInterrupt):
            for first in range(0, len(left), _AT_ONCE):
                if time.monotonic() < ends_at:
                    self._judge_some(left[first : first + _AT_ONCE], ends_at)

    def _judge_some(self, some: Sequence[Site], ends_at: float) -> None:
        asked = {site: self._tests(site) for site in some}
        with ExitStack() as stack:
            judges = SimpleQueue[Judge]()

            def one(site: Site) -> tuple[Site, Verdict | None]:
                if time.monotonic() > ends_at:
                    return site, None
                judge = judges.get()
                try:
                    return site, judge.judge(site, *asked[site])
                finally:
                    judges.put(judge)

            number = min(len(some), len(os.sched_getaffinity(0)))
            for judge in [stack.enter_context(Judge(asked)) for _ in range(number)]:
                judges.put(judge)
            with ThreadPoolExecutor(number) as pool:
                try:
                    for site, verdict in pool.map(one, some):
                        if verdict is not None:
                            self._tell(site, verdict)
                except KeyboardInterrupt:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise

    def fault(self, *, is_deadly_asked: bool) -> str:
        """Return what makes all of it worthless, "" if nothing does.

        The tests that noticed something have to pass without a change, and a change that is known
        to be deadly has to be noticed, if ``is_deadly_asked``.
        """
        if not self.caught and not self.living:
            return "nothing was tried"
        killers = [one for one in dict.fromkeys(self.caught.values()) if one != TYPES]
        (deadly,) = (site for site in sites_of(DEADLY) if site.name == DEADLY)
        asked = self._tests(deadly)
        with Judge({deadly: ([*asked[0], *killers], asked[1])}) as judge:
            without = judge.judge(None, killers, 60.0 * len(killers))
            if without.is_caught:
                return f"without a change, this fails as well: {without.by}"
            if is_deadly_asked and not judge.judge(deadly, *asked).is_caught:
                return f"nothing notices even {DEADLY}"
        return ""

    def _tell(self, site: Site, verdict: Verdict) -> None:
        word = "caught" if verdict.is_caught else "LIVES"
        say(f"{word:6} {verdict.seconds:5.1f} s  line {site.line}: {site.name}")
        if verdict.is_caught:
            say(f"                by {verdict.by}")
            self.caught[site.name] = verdict.by
        else:
            self.living.append(site.name)
        if self._judged is not None:
            with self._judged.open("a", encoding="utf-8") as file:
                file.write(f"{word:6}  {site.name}\n")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=".ci/tasks mutants", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", help="parts of the names of changes, such as kube/events.py")
    add("--all", action="store_true", help="every change; goes on where the last run stopped")
    add("--random", type=int, metavar="N", help="so many of those chosen")
    add("--seed", type=int, default=0, help="of --random")
    add("--sample", metavar="DATE", help=f"{_SAMPLE} of a day, in three minutes at most")
    add("--minutes", type=float, default=1e6, help="begin nothing after these")
    add("--seconds", type=float, default=30.0, help="of CPU, of tests for each change")
    add(
        "--tests",
        nargs="+",
        metavar="FILE",
        help="ask these files or folders, not those of the record",
    )
    add("--list", action="store_true", help="print the names")
    add(
        "--record",
        action="store_true",
        help="record what tests run, with --sample first those of what it changes",
    )
    options = parser.parse_args(argv)
    if options.sample:
        options.random = _SAMPLE
        options.minutes = _SAMPLE_S / 60
        options.seed = dt.date.fromisoformat(options.sample).toordinal()
    if not (options.names or options.all or options.random or options.record):
        parser.error("which? Name some, or see --help")
    return options


def _chosen(options: argparse.Namespace) -> list[Site]:
    known = equivalent()
    chosen = [
        site
        for site in every_site()
        if site.name not in known
        and (not options.names or any(part in site.name for part in options.names))
    ]
    if options.random or options.all:
        number = min(options.random or len(chosen), len(chosen))
        return random.Random(options.seed).sample(chosen, number)  # noqa: S311 - no secret
    return chosen


def _chooser(options: argparse.Namespace, folder: Path) -> tuple[Chooser, bool]:
    """Return what chooses the tests of a change, and whether it knows all tests."""
    if options.tests:
        files = [str(file) for one in options.tests for file in _files(Path(one))]
        return lambda _: (files, options.seconds), True
    # The sample has no time for it: `.ci/run` has recorded beside other work.
    missing = unrecorded(folder) if options.sample else record(folder, options.minutes * 60)
    if missing:
        say(f"not asked, as it is not recorded yet what they run: {', '.join(missing)}")
    reach = Reach(folder)
    return lambda site: reach.tests(site, options.seconds), not missing


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path]


def main(argv: Sequence[str]) -> int:
    """Judge what the arguments choose; return the exit code."""
    options = _arguments(argv)
    began = time.monotonic()
    folder = _cache()
    if options.record:
        of_sample = _chosen(options) if options.sample else []
        first = [one for site in of_sample for one in folders_of(site.path)]
        missing = record(folder / "reached", options.minutes * 60, first)
        say(f"not recorded yet: {', '.join(missing) or 'nothing'}")
        return 0
    chosen = _chosen(options)
    if options.list:
        say("\n".join(site.name for site in chosen))
        return 0
    tests, knows_all = _chooser(options, folder / "reached")
    run = Run(tests, folder / "judged" if options.all else None)
    run.judge(chosen, began + options.minutes * 60)
    # A few files need not notice what all others do.
    fault = run.fault(is_deadly_asked=not options.tests)
    say(f"{len(run.caught)} of {len(run.caught) + len(run.living)} changes are noticed")
    for name in run.living:
        say(f"nothing notices {name}")
    if fault:
        say(fault)
    most = 0.0
    if options.sample:
        # Of a few, three may live by chance; what tests are not asked, they cannot notice.
        third = _MOST_LIVING_IN_SAMPLE * (len(run.caught) + len(run.living))
        most = max(3.0, third) if knows_all else math.inf
    return 1 if len(run.living) > most or fault else 0


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "lean-sandbox" / "mutants"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
