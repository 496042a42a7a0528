"""Proof that the stories bite: the controller with one guard, wake or recheck less has to fail.

``python -m tests.faults.mutants [NAME ...]`` changes one place in a copy of the package and runs
the laws of lists and answers and the stories against it. A mutant that nothing notices is printed
last and makes the run fail; so does one whose place is no longer found: mend the list with the
code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["MUTANTS", "Mutant"]

ROOT = Path(__file__).resolve().parents[2]
# The quickest first.
_LAWS = tuple(
    f"tests/{name}.py"
    for name in (
        "watch/test_bug_in_a_watch",
        "watch/test_lists",
        "watch/test_restored_store",
        "watch/test_explain",
        "kube/test_events",
        "controllers/sandbox/test_status_of_others",
        "controllers/sandbox/test_pods_without_label",
        "watch/test_unknown_versions",
        "watch/test_creates_in_flight",
        "runtime/test_queue",
        "controllers/sandbox/test_restart",
        "faults/test_late_deletions",
        "faults/test_refusals",
        "controllers/claim/test_usable",
        "controllers/claim/test_what_wakes",
        "controllers/claim/test_binding",
        "controllers/claim/test_edit_in_a_crowd",
        "controllers/sandbox/test_pod_adoption",
        "controllers/warmpool/test_staleness",
        "faults/test_lost_answers",
        "faults/test_overtaken_answers",
        "manager/test_relays",
        "faults/test_stories",
    )
)
_STORIES = "80"
_LONGEST_S = 400.0


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of the product."""

    name: str
    path: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Change a copy; fails when the place is not there exactly once."""
        path = root / "lean_sandbox" / self.path
        text = path.read_text()
        if text.count(self.old) != 1:
            raise LookupError(f"{self.name}: found {text.count(self.old)} times in {self.path}")
        path.write_text(text.replace(self.old, self.new))


_CACHE = "watch/cache.py"
_VERSIONS = "watch/versions.py"
_HELD = "watch/held.py"
_WRITES = "watch/writes.py"
_WRITER = "runtime/writer.py"
_SANDBOX = "controllers/sandbox/controller.py"
_CLAIM = "controllers/claim/controller.py"
_POOL = "controllers/warmpool/controller.py"
_BIND_STATUS = "controllers/claim/reconcile.py"
_QUEUE = "runtime/queue.py"
_WORKERS = "runtime/workers.py"

MUTANTS = (
    Mutant(
        "a claim is Ready before its Pod is free",
        _BIND_STATUS,
        "            await self._attempt(make_usable(self._context, self._sandbox))\n",
        "",
    ),
    Mutant(
        "a claim's status is written beside the patch of its Pod",
        _BIND_STATUS,
        "        return is_true(new.conditions, names.READY) and (is_another or not was_ready)",
        "        return is_true(new.conditions, names.READY) and is_another and was_ready",
    ),
    Mutant(
        "Ready does not wait until the watch has shown the Pod",
        "controllers/claim/usable.py",
        "            await shown.until(written.entry.version, context.clock, _SHOWN_WITHIN_S)\n",
        "",
    ),
    Mutant(
        "a Pod that is refused is taken for free",
        "controllers/claim/usable.py",
        "        raise ClaimError(ClaimFault.OTHER, text) from error\n",
        "        return pod\n",
    ),
    Mutant(
        "no look after an overtaken answer",
        _WRITES,
        "        cache.handlers.call(Delta(entry.key, Change.COLUMNS, before, entry))",
        "        pass",
    ),
    Mutant(
        "what a response shows of others is told to nobody",
        _WRITES,
        "            cache.handlers.call(Delta(entry.key, change, before, now))",
        "            pass",
    ),
    Mutant(
        "an old answer replaces a newer event",
        _VERSIONS,
        "        if old is not None and 0 < version < old.version:",
        "        if False:",
    ),
    Mutant(
        "no tombstones",
        _VERSIONS,
        "if end is not None and end.number > known.ends and self.has_ended(uid, version):",
        "if False:",
    ),
    Mutant(
        "a list removes nothing",
        _CACHE,
        "        for key in missing:",
        "        for key in missing[:0]:",
    ),
    Mutant(
        "an event that waited for an answer is dropped",
        _HELD,
        "                if (event := self._held.pop(own, None)) is not None:",
        "                if (event := self._held.pop(own, None)) is None:",
    ),
    Mutant(
        "a deletion is known already",
        _CACHE,
        "        if old is not None and (old.uid != row.uid or 0 < version < old.version):",
        "        if old is not None and old.uid == row.uid:",
    ),
    Mutant(
        "a list is compared with what is cached alone",
        _VERSIONS,
        "_Listing(missing, max(newest, reached), resync)",
        "_Listing(missing, newest, resync)",
    ),
    Mutant(
        "no wake by Pods",
        _SANDBOX,
        "        self._enqueue(keys, reason, may_wait=may_wait, is_news=is_news, tells=tells)",
        "",
    ),
    Mutant(
        "no wake by the end of a Pod",
        _SANDBOX,
        "        if delta.initial:\n            return\n        # Before there is a node",
        "        if delta.initial or delta.new is None:\n"
        "            return\n        # Before there is a node",
    ),
    Mutant(
        "no wake by Services",
        _SANDBOX,
        '            self._enqueue(_concerned(delta, if_unowned=True), "service changed")',
        "            pass",
    ),
    Mutant(
        "a Pod out of sight is taken for gone",
        _SANDBOX,
        "            hidden.lost(key)",
        "            hidden.ended(key)",
    ),
    Mutant(
        "absence outlasts a create",
        "controllers/sandbox/requests.py",
        "        self.hidden.forget(sandbox)\n",
        "",
    ),
    Mutant(
        "a status that somebody else has written is believed",
        "watch/resources/sandbox.py",
        "    return status_writers(row.managed_fields) not in (0, entry.writers)",
        "    return False",
    ),
    Mutant(
        "no wake of a claim by the status of its Sandbox",
        _CLAIM,
        "        if claim is None:\n            return\n        if not _repeats",
        "        if claim is not None:\n            return\n        if not _repeats",
    ),
    Mutant(
        "no wake of a claim by events of its Sandbox",
        _CLAIM,
        "            if claim is not None:\n                # With the claim itself",
        "            if False:\n                # With the claim itself",
    ),
    Mutant(
        "no wake of claims by their pool",
        _CLAIM,
        '        self._wake_claims([delta.key], "pool", unless=self._is_served)',
        "        pass",
    ),
    Mutant(
        "no wake of claims by their template",
        _CLAIM,
        '            self._wake_claims(self._context.resolver.pools_of(delta.key), "template")',
        "            pass",
    ),
    Mutant(
        "a pool is not told of a member that was taken, nor of any other change",
        _POOL,
        "        if pool in self.cache:",
        "        if False:",
    ),
    Mutant(
        "no wake of pools by their template",
        _POOL,
        '            self.wake(pool, reason="template")',
        "            pass",
    ),
    Mutant(
        "what comes while a key is worked on is lost",
        _QUEUE,
        "        if self.closed.is_set() or self.is_paused:\n            return",
        "        if self.closed.is_set() or self.is_paused or key in self._running:\n"
        "            return",
    ),
    Mutant(
        "a failed pass is not repeated",
        _WORKERS,
        '        next_s = self._retry(item.key, getattr(error, "retry_after_s", None) or 0.0)',
        "        next_s = 0.0",
    ),
    Mutant(
        "a pass that asks for another is not heard",
        _WORKERS,
        "self._queue.add(\n                key,\n                rank=item.rank,",
        "dict(\n                key=key,\n                rank=item.rank,",
    ),
    Mutant(
        "a Sandbox is never reconciled",
        _SANDBOX,
        "        if entry is None or entry.is_deleting:\n            # Children go",
        "        if True:\n            # Children go",
    ),
    Mutant(
        "a claim is never reconciled",
        _CLAIM,
        "        if entry is None:\n            return Result()\n        state =",
        "        if True:\n            return Result()\n        state =",
    ),
    Mutant(
        "a pool is never reconciled",
        _POOL,
        "        if entry is None or entry.is_deleting or entry.view is None:\n"
        "            self._states.pop(item.key, None)",
        "        if True:\n            self._states.pop(item.key, None)",
    ),
    Mutant(
        "a create that collides is taken for done",
        "controllers/sandbox/pod.py",
        "        except AlreadyExists:\n            return False\n        except",
        "        except AlreadyExists:\n            return True\n        except",
    ),
    Mutant(
        "a pool never has too many",
        "controllers/warmpool/reconcile.py",
        "        await self._shrink(members)\n",
        "",
    ),
    Mutant(
        "a policy that went is made anew for a template that went",
        "controllers/template.py",
        "if Cause.CHILD_GONE in item.causes and may_create:",
        "if False:",
    ),
    Mutant(
        "members that went are made anew for a pool that went",
        _POOL,
        "if Cause.CHILD_GONE in item.causes and item.key in self.cache:",
        "if False:",
    ),
    Mutant(
        "a claim is ready by the word of a Pod that is gone",
        "controllers/claim/usable.py",
        "        if any(pod is not None and pod.may_be_ready for pod in found):",
        "        if True:",
    ),
    Mutant(
        "a member is handed out by the word of a Pod that is gone",
        "controllers/warm.py",
        '        return _WAITING, ""\n'
        "    is_ready = entry.is_ready and any(pod.may_be_ready for pod in living)",
        "        pass\n    is_ready = entry.is_ready",
    ),
    Mutant(
        "who takes over waits for news",
        "manager/manager.py",
        '                controller.enqueue_all("elected")',
        "                pass",
    ),
    Mutant(
        "a shard serves what is others'",
        "manager/wiring.py",
        "admits_namespace=None if shard is None else shard.admits",
        "admits_namespace=None",
    ),
    Mutant(
        "a Sandbox that a response shows outside of the selection is kept",
        _WRITES,
        "    if not cache.selects(row):",
        "    if False:",
    ),
    Mutant(
        "a response from a restored store wakes its key",
        _WRITES,
        "if 0 < version < known.version:",
        "if False:",
    ),
    Mutant(
        "a bug in one watch ends the others",
        "watch/reflector.py",
        '                self._log.exception("watch_panicked")\n',
        "                raise error\n",
    ),
    Mutant(
        "a Table without a column cannot be explained",
        "watch/explain.py",
        " or any(name not in columns for name in names)",
        "",
    ),
    Mutant(
        "ten times as many Events wait",
        "kube/events.py",
        "_MOST_WAITING = 1000\n",
        "_MOST_WAITING = 10000\n",
    ),
    Mutant(
        "ten times as many series are remembered",
        "kube/events.py",
        "_MOST_SERIES = 1000\n",
        "_MOST_SERIES = 10000\n",
    ),
    Mutant(
        "a status that was known is told after each reconcile",
        "controllers/sandbox/reconcile.py",
        "was_unknown = self._run.entry.knowledge is Knowledge.UNKNOWN",
        "was_unknown = True",
    ),
    Mutant(
        "a Pod that is labelled again stays out of sight",
        "controllers/sandbox/requests.py",
        "            self.hidden.forget(key)\n        else:",
        "            pass\n        else:",
    ),
    Mutant(
        "the first edit of a claim waits for the crowd",
        _CLAIM,
        "claim.generation > 1",
        "claim.generation > 2",
    ),
    Mutant(
        "a deletion whose version is not known has no guard",
        _WRITER,
        "            version = await self.guard(cache, entry) if is_guarded else None",
        "            version = str(entry.version) if is_guarded and entry.version else None",
    ),
    Mutant(
        "a version that is not known is written as 0",
        _WRITER,
        "        if entry.version:\n            return str(entry.version)",
        "        if True:\n            return str(entry.version)",
    ),
    Mutant(
        "what has changed since the decision is written to by its new version",
        _WRITER,
        ' and version not in ("", "0") and _is_same(found.entry, entry):',
        ' and version not in ("", "0"):',
    ),
    Mutant(
        "a cause is lost where others came first",
        _QUEUE,
        "        self.causes |= causes\n",
        "",
    ),
    Mutant(
        "a retry forgets what the reconcile was for",
        _QUEUE,
        "        causes = Cause.EVENT if failed is None else failed.causes",
        "        causes = Cause.EVENT",
    ),
    Mutant(
        "a timer counts as a start",
        _SANDBOX,
        "        is_start = item.causes == Cause.LISTED",
        "        is_start = item.priority == LOW",
    ),
    Mutant(
        "no event waits for a create whose name the server generates",
        _HELD,
        "        if not creates or self._knows(*own):",
        "        if True:",
    ),
    Mutant(
        "a new object waits for creates that came later",
        _HELD,
        "_NewObject(event, set(creates))",
        "_NewObject(event, creates)",
    ),
    Mutant(
        "what waits for a create outlives the object",
        _HELD,
        "        if self._gate.has_ended(row.uid, as_version(row.resource_version)):",
        "        if False:",
    ),
)


def _judge(mutant: Mutant | None) -> tuple[bool, float]:
    """Return whether a test failed with a mutant (``None``: without), and how long that took."""
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("lean_sandbox", "filters", "tests", "manifests"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, root / name)
        if mutant is not None:
            mutant.apply(root)
        environment = {**os.environ, "PYTHONPATH": folder, "SANDBOX_TESTS_STORIES": _STORIES}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *_LAWS]
        try:
            done = subprocess.run(  # noqa: S603 - our own tests
                command,
                cwd=root,
                env=environment,
                capture_output=True,
                timeout=_LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            # No verdict, so nothing was noticed.
            return False, time.monotonic() - began
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout.decode() + done.stderr.decode())
    return done.returncode == 1, time.monotonic() - began


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(names: list[str]) -> int:
    """Judge the mutants, or those named; return the exit code.

    The controller as it is goes first: if it fails, a mutant that fails proves nothing.
    """
    chosen = [one for one in MUTANTS if not names or one.name in names]
    has_failed, took_s = _judge(None)
    if has_failed:
        _say(f"FAILED  {took_s:6.1f} s  the controller without a change")
        return 1
    survivors = []
    for mutant in chosen:
        is_caught, took_s = _judge(mutant)
        _say(f"{'caught' if is_caught else 'MISSED':7} {took_s:6.1f} s  {mutant.name}")
        if not is_caught:
            survivors.append(mutant.name)
    _say(f"{len(chosen) - len(survivors)}/{len(chosen)} mutants caught")
    return 1 if survivors or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
