"""The ConfigMap `agent-sandbox-config`, whose keys are flags: which may be there, and its one GET.

It stands for what an operator tunes for all controllers of a namespace together. What makes one
process what it is (its server, its namespaces, its Lease, its addresses, its kinds) is told to that
process alone, by its command line, environment or config file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.config.reference import IDLE, TRANSLATED
from lean_sandbox.kube.asking import ask
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import CONFIGMAPS

CONFIG_MAP: Final = "agent-sandbox-config"

TUNABLE: Final = frozenset(
    {
        "max-requests-in-flight",
        "kube-api-qps",
        "kube-api-burst",
        "request-timeout",
        "page-size",
        "streams-initial-list",
        "watch-representation",
        "cache-label-selectors",
        "cluster-domain",
        "sandbox-concurrent-workers",
        "sandbox-status-window",
        "sandbox-status-step-window",
        "sandbox-write-behind-window",
        "disable-sandbox-events",
        "reconcile-deadline",
        "sandbox-claim-concurrent-workers",
        "sandbox-claim-warm-candidate-grace-period",
        "sandbox-warm-pool-concurrent-workers",
        "sandbox-template-concurrent-workers",
        "sandbox-warm-pool-max-batch-size",
        "sandbox-warm-pool-replenish-delay",
        "sandbox-warm-pool-max-refill-rate",
        "sandbox-warm-pool-readiness-grace-period",
        "sandbox-warm-pool-unschedulable-recheck-interval",
        "enable-warm-pool-eviction",
        "disable-claim-events",
        "disable-claim-observability-annotations",
        "allowed-label-domains",
        "enable-rest-client-metrics",
        "log-level",
        "log-format",
        *TRANSLATED,
        *IDLE,
    }
)
"""The flags that the ConfigMap may set, those of the reference without a setting here included."""


class ConfigMap(msgspec.Struct, frozen=True):
    """The ConfigMap as it was read: its name in words, and its values by flag."""

    name: str
    values: Mapping[str, str]


class _Object(msgspec.Struct):
    data: dict[str, str] | None = None


async def read(client: Client, clock: Clock, namespace: str) -> ConfigMap | None:
    """Return the ConfigMap of ``namespace``, ``None`` where there is none or it may not be read.

    One GET, repeated while the server does not answer.
    """
    found = await ask(
        client, clock, CONFIGMAPS, namespace, CONFIG_MAP, _Object, unknown="config_map_unknown"
    )
    if found is None:
        return None
    return ConfigMap(f"{namespace}/{CONFIG_MAP}", found.data or {})
