"""What a value may be, beyond its form, and which settings contradict each other."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from lean_sandbox.config.values import SHARD
from lean_sandbox.kube.errors import ConfigError

if TYPE_CHECKING:
    from lean_sandbox.config.options import Settings

_POSITIVE = (
    "sandbox_warm_pool_readiness_grace_period",
    "sandbox_warm_pool_unschedulable_recheck_interval",
    "sandbox_concurrent_workers",
    "sandbox_claim_concurrent_workers",
    "sandbox_warm_pool_concurrent_workers",
    "sandbox_warm_pool_max_batch_size",
    "kube_api_burst",
    "max_requests_in_flight",
    "page_size",
)
_NOT_NEGATIVE = (
    "sandbox_write_behind_window",
    "sandbox_status_window",
    "sandbox_status_step_window",
    "sandbox_claim_warm_candidate_grace_period",
    "shutdown_grace",
    "trace_entries",
)
_LONGER_THAN_NOTHING = ("reconcile_deadline", "request_timeout")
_CHOICES = {
    "watch_representation": ("cells", "table", "metadata", "full"),
    "log_level": ("debug", "info", "warning", "error"),
    "log_format": ("auto", "json", "console"),
}
_MANY_WORKERS = 1000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST_NAME = 253


def check(settings: Settings) -> None:
    """Raise ConfigError for values that cannot work, naming every flag concerned."""
    for name in _POSITIVE:
        if getattr(settings, name) <= 0:
            raise ConfigError(
                f"{_flag(name)} must be greater than 0, not {getattr(settings, name)}"
            )
    for name in _NOT_NEGATIVE:
        if getattr(settings, name) < 0:
            raise ConfigError(f"{_flag(name)} must not be negative")
    for name in _LONGER_THAN_NOTHING:
        if getattr(settings, name) <= 0:
            raise ConfigError(f"{_flag(name)} must be longer than 0s")
    for name, allowed in _CHOICES.items():
        value = getattr(settings, name)
        if value not in allowed:
            raise ConfigError(f"{_flag(name)} must be one of {', '.join(allowed)}, not {value!r}")
    try:
        SHARD.parse(settings.shard)
    except ValueError as error:
        raise ConfigError(f"--shard: {settings.shard!r} is not valid: {error}") from error
    lease = settings.leader_election_lease
    if lease and (len(lease) > _LONGEST_NAME or not _NAME.fullmatch(lease)):
        raise ConfigError(
            f"--leader-election-lease: {lease!r} is no name of an object: lower-case letters,"
            " digits, - and . between them"
        )
    if math.isnan(settings.kube_api_qps):
        raise ConfigError("--kube-api-qps must be a number, negative for no limit")
    rate = settings.sandbox_warm_pool_max_refill_rate
    if not math.isfinite(rate) or rate < 0:
        raise ConfigError(f"--sandbox-warm-pool-max-refill-rate must be 0 or more, not {rate}")
    _check_together(settings)


def _check_together(settings: Settings) -> None:
    both = sorted(set(settings.namespaces) & set(settings.exclude_namespaces))
    if both:
        raise ConfigError(
            f"{', '.join(both)} cannot be both in --namespaces and in --exclude-namespaces",
            way_out="take it out of one of them",
        )
    if settings.shard and settings.namespaces:
        raise ConfigError(
            "--shard cannot go with --namespaces: one divides all namespaces, the other names its"
            " own",
            way_out="give one of the two; --exclude-namespaces goes with --shard",
        )
    if settings.sandbox_label_selector and settings.extensions:
        raise ConfigError(
            "--sandbox-label-selector cannot go with --extensions: claims and pools would not see"
            " the Sandboxes they make",
            way_out="divide the work by --namespaces instead, or serve claims in another process",
        )
    if settings.metrics_secure_serving and not settings.metrics_cert_dir:
        raise ConfigError("--metrics-secure-serving needs --metrics-cert-dir")


def doubts(settings: Settings) -> dict[str, str]:
    """Return what would work but is probably not meant: why, by flag."""
    found = {}
    workers = (
        settings.sandbox_concurrent_workers
        + settings.sandbox_claim_concurrent_workers
        + settings.sandbox_warm_pool_concurrent_workers
        + settings.sandbox_template_concurrent_workers
    )
    if workers > _MANY_WORKERS:
        found["--sandbox-concurrent-workers"] = (
            f"{workers} workers in all: more than {_MANY_WORKERS} mostly wait for the API server"
        )
    if settings.kube_api_qps > 0 and workers > settings.kube_api_burst:
        found["--kube-api-burst"] = (
            f"{workers} workers in all share a burst of {settings.kube_api_burst}: they will wait"
            " for the rate"
        )
    return found


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
