"""The end of whatever was done to a control plane, and what has to be so then."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from typing import Any

from lean_sandbox.runtime.queue import BACKOFF_CAP_S
from tests.faults.acts import NAMESPACES, Acts
from tests.faults.details import CANNOT_START, discrepancies
from tests.faults.oracle import CLAIMS, POOLS, SANDBOXES, violations
from tests.support.names import REF_HASH
from tests.support.stored import condition_of, owner_of

__all__ = ["Ending"]

Json = dict[str, Any]
# Every window and pause that a story leads to is over by then.
_LONG_S = 130.0
# So is the pause after this many failures in a row; the next one is longer.
_FEW_FAILURES = 15
_REST_S = 65.0
# What is asked beside the work.
_BESIDE = ("events", "leases")


class Ending(Acts):
    """Acts that come to an end, at which everything is as specified and nothing is asked for."""

    def end(self) -> list[str]:
        """End all faults, let time pass, and return what is not as it should be."""
        self.tell("all faults end")
        found: list[str] = self._run(self._end())
        return found

    @abstractmethod
    async def _end(self) -> list[str]:
        """See :meth:`end`."""

    async def _come_to_rest(self) -> list[str]:
        """Let kubelets work until nothing is left to do; return what is not as specified then."""
        for _ in range(20):
            await self._time(4.0)
            if not self._kubelets.work():
                break
        # That a Pod without its label has gone is shown by no watch: a retry finds the name free.
        is_long = self._failures > _FEW_FAILURES or "ReconcilerError" in self._reasons(SANDBOXES)
        await self._time(BACKOFF_CAP_S if is_long else _LONG_S)
        for _ in range(5):
            if not self._kubelets.work():
                break
            await self._time(_LONG_S)
        scope = self.scope
        found = violations(self.plane, NAMESPACES, disowned=self._disowned, scope=scope)
        return found + discrepancies(self.plane, NAMESPACES, scope=scope)

    async def _stay_at_rest(self) -> list[str]:
        """Return what is asked for while nothing happens, and what whoever begins anew writes."""
        found = []
        self.plane.audit.reset()
        await self._time(_REST_S)
        reasons = self._reasons(CLAIMS, POOLS)
        waits = any("cannot start" in one or "NotFound" in one for one in reasons)
        asked = self._asked()
        if any(not waits or not what.startswith("get ") for what in asked):
            found.append(f"at rest the controller still asks: {dict(asked)}")
        self.plane.audit.reset()
        said = self._claims_say()
        made = self._made_for_claims()
        await self._replace()
        await self._time(_REST_S)
        # The end of a template or a pool wakes no claim (claims, 8.1): its next reconcile tells.
        told = [one for one in self._claims_say() - said if one[2] in CANNOT_START]
        written = self._written()
        written.subtract({"patch sandboxclaims/status": len(told)})
        # Nor do a template's name and labels reach the Sandboxes that are bound (claims, 3.3).
        behind = len(self._made_for_claims() - made)
        for what in ("patch sandboxes", "patch sandboxes/status", "patch pods"):
            written.subtract({what: min(behind, written[what])})
        if written := +written:
            found.append(f"a fresh controller writes over what is at rest: {dict(written)}")
        return found

    def _asked(self) -> Counter[str]:
        """Return what was asked since the audit was reset, without watches, Events and Leases."""
        asked = sum((self.plane.audit.counts(user) for user in self.users), Counter[str]())
        return Counter({what: n for what, n in asked.items() if what.split()[1] not in _BESIDE})

    def _written(self) -> Counter[str]:
        """Return the writes among it."""
        return Counter({what: n for what, n in self._asked().items() if not _reads(what)})

    def _claims_say(self) -> set[tuple[str, str, str]]:
        claims = [one for where in NAMESPACES for one in self.plane.store.list(CLAIMS, where)]
        named = [(one["metadata"], condition_of(one, "Ready").get("reason", "")) for one in claims]
        return {(it["namespace"], it["name"], reason) for it, reason in named}

    def _made_for_claims(self) -> set[tuple[str, str, str, str]]:
        """Return what templates and claims say of the Sandboxes that claims have."""
        return {
            (where, metadata["name"], labels.get(REF_HASH, ""), str(pod.get("labels")))
            for where in NAMESPACES
            for one in self.plane.store.list(SANDBOXES, where)
            if owner_of(one).get("kind") == "SandboxClaim"
            for metadata, pod in [(one["metadata"], one["spec"]["podTemplate"].get("metadata", {}))]
            for labels in [metadata.get("labels", {})]
        }

    def _reasons(self, *kinds: str) -> list[str]:
        return [
            condition["reason"]
            for namespace in NAMESPACES
            for resource in kinds
            for one in self.plane.store.list(resource, namespace)
            for condition in one.get("status", {}).get("conditions") or ()
        ]


def _reads(what: str) -> bool:
    return what.startswith(("get ", "list "))
