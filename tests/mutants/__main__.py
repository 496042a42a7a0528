"""Changes the product in one place after another: each time a test has to fail.

What no test notices is printed, and makes the run fail, unless ``equivalent.txt`` says why nothing
can notice it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.mutants.copies import ROOT
from tests.mutants.judge import Copy, Verdict
from tests.mutants.reach import Reach, record
from tests.mutants.sites import Site, modules, sites

__all__ = ["DEADLY", "EQUIVALENT", "equivalent", "every_site"]

EQUIVALENT = Path(__file__).with_name("equivalent.txt")
DEADLY = (
    "lean_sandbox/runtime/queue.py WorkQueue.add: "
    "drop self._admit(key, rank, (reason,), cause, after_s) => pass"
)
"""A change that any test of a controller notices: if none does, nothing is noticed at all."""
_SAMPLE = 20
_SAMPLE_S = 150.0


def every_site() -> list[Site]:
    """Return all changes of the product."""
    return [
        site for path in modules(ROOT) for site in sites(path, (ROOT / path).read_text("utf-8"))
    ]


def equivalent() -> set[str]:
    """Return the names of the changes that nothing can notice."""
    lines = EQUIVALENT.read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith((" ", "#"))}


class Run:
    """Judges changes, a few at a time, and tells of each."""

    def __init__(self, reach: Reach, *, most_s: float, ends_at: float, judged: Path | None) -> None:
        """Take how long the tests of one change may take, and when no other one is begun.

        What is judged is appended to a file, if there is one, and not judged again.
        """
        self._reach = reach
        self._most_s = most_s
        self._ends_at = ends_at
        self._judged = judged
        self._copies: SimpleQueue[Copy] = SimpleQueue()
        self.killers: dict[str, Site] = {}
        self.living: list[Site] = []
        self.caught = 0

    def all(self, chosen: list[Site], folders: list[Path]) -> None:
        """Judge changes, as many at a time as there are empty folders."""
        for folder in folders:
            self._copies.put(Copy(folder))
        done = set()
        if self._judged is not None and self._judged.exists():
            done = {line[9:] for line in self._judged.read_text("utf-8").splitlines()}
        with ThreadPoolExecutor(len(folders)) as pool:
            for site, verdict in pool.map(
                self._one, [one for one in chosen if one.name not in done]
            ):
                if verdict is not None:
                    self._tell(site, verdict)

    def control(self) -> bool:
        """Return whether tests that noticed a change pass without one, and notice a deadly one."""
        copy = self._copies.get()
        without = copy.judge(None, list(self.killers), 60.0 * len(self.killers))
        if without.is_caught:
            say(f"FAILS without a change: {without.by}")
            return False
        deadly = next(one for one in every_site() if one.name == DEADLY)
        if not copy.judge(deadly, *self._reach.tests(deadly, self._most_s)).is_caught:
            say(f"PASSES with a deadly change: {DEADLY}")
            return False
        return True

    def _one(self, site: Site) -> tuple[Site, Verdict | None]:
        if time.monotonic() > self._ends_at:
            return site, None
        tests, seconds = self._reach.tests(site, self._most_s)
        copy = self._copies.get()
        try:
            return site, copy.judge(site, tests, seconds)
        finally:
            self._copies.put(copy)

    def _tell(self, site: Site, verdict: Verdict) -> None:
        word = "caught" if verdict.is_caught else "LIVES"
        say(f"{word:7} {verdict.seconds:5.1f} s  {site.name}  ({site.line})  {verdict.by}")
        if verdict.is_caught:
            self.caught += 1
            self.killers.setdefault(verdict.by, site)
        else:
            self.living.append(site)
        if self._judged is not None:
            with self._judged.open("a", encoding="utf-8") as file:
                file.write(f"{word:7}  {site.name}\n")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=".ci/tasks mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of changes")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    parser.add_argument("--all", action="store_true", help="go on where the last run stopped")
    parser.add_argument("--record", action="store_true", help="record what tests run, alone")
    parser.add_argument("--random", type=int, metavar="N", help="so many of those chosen")
    parser.add_argument("--sample", metavar="DATE", help="some of a day, in three minutes at most")
    parser.add_argument("--seed", type=int, default=0, help="of --random")
    parser.add_argument("--seconds", type=float, default=30.0, help="of tests for each change")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after these")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Judge what the arguments choose; return the exit code."""
    options = _arguments(argv)
    known = equivalent()
    chosen = [one for one in every_site() if one.name not in known]
    if options.names:
        chosen = [one for one in chosen if any(part in one.name for part in options.names)]
    if options.sample:
        options.random, options.minutes = _SAMPLE, _SAMPLE_S / 60
        options.seed = dt.date.fromisoformat(options.sample).toordinal()
    if options.random:
        chosen = random.Random(options.seed).sample(  # noqa: S311 - no secret
            chosen, min(options.random, len(chosen))
        )
    if options.list:
        for site in chosen:
            say(site.name)
        return 0
    folder = _cache()
    missing = record(folder / "reached", options.minutes * 60)
    if options.record:
        return 1 if missing else 0
    if missing:
        say(f"not asked, since there was no time to record what they run: {len(missing)} files")
    run = Run(
        Reach(folder / "reached"),
        most_s=options.seconds,
        ends_at=time.monotonic() + options.minutes * 60,
        judged=folder / "judged" if options.all else None,
    )
    with ExitStack() as stack:
        number = len(os.sched_getaffinity(0))
        run.all(chosen, [Path(stack.enter_context(TemporaryDirectory())) for _ in range(number)])
        is_proven = run.control()
    say(f"{run.caught} of {run.caught + len(run.living)} changes are noticed")
    for site in run.living:
        say(f"  nothing notices {site.name}")
    return 1 if run.living or not is_proven else 0


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "lean-sandbox" / "mutants"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
