"""The annotations by which users ask companions for something, and in which these keep count."""

from __future__ import annotations

from typing import Final

from lean_sandbox.model import names

PREFIX: Final = "companions.lean-sandbox/"
FAILURE_POLICY: Final = names.CORE_PREFIX + "pod-failure-policy"
FAILURE_LIMIT: Final = PREFIX + "pod-failure-limit"
FAILURE_COUNT: Final = PREFIX + "pod-failure-count"
FAILURE_TIME: Final = PREFIX + "pod-failure-time"
FAILURE_POD: Final = PREFIX + "pod-failure-uid"
CLAIM_DEFAULTS: Final = PREFIX + "claim-defaults"
DEFAULTS_APPLIED: Final = PREFIX + "claim-defaults-applied"
IDLE_TIMEOUT: Final = names.CORE_PREFIX + "idle-timeout-seconds"
LAST_ACTIVITY: Final = names.CORE_PREFIX + "last-activity-time"
ROLLING_UPDATE: Final = PREFIX + "rolling-update"
ROLLOUT_STATUS: Final = PREFIX + "rollout-status"
MIN_REPLICAS: Final = PREFIX + "min-replicas"
MAX_REPLICAS: Final = PREFIX + "max-replicas"

#: What is remembered of the annotations of an object.
KEPT: Final = frozenset(
    {
        names.TEMPLATE_REF_ANNOTATION,
        FAILURE_POLICY,
        FAILURE_LIMIT,
        FAILURE_COUNT,
        FAILURE_TIME,
        FAILURE_POD,
        CLAIM_DEFAULTS,
        DEFAULTS_APPLIED,
        IDLE_TIMEOUT,
        LAST_ACTIVITY,
        ROLLING_UPDATE,
        ROLLOUT_STATUS,
        MIN_REPLICAS,
        MAX_REPLICAS,
        names.POD_NAME_ANNOTATION,
    }
)
