"""Settings that work, but are probably not what was meant."""

from __future__ import annotations

from typing import Final

from lean_sandbox.config.declare import flag_of
from lean_sandbox.config.options import LONGEST_WRITE_BEHIND_S, Settings
from lean_sandbox.model.names import is_object_name

_MANY_WORKERS: Final = 1000


def doubts(settings: Settings) -> dict[str, str]:
    """Return, by flag, why a setting that works is probably not what was meant."""
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
    if settings.sandbox_write_behind_window > LONGEST_WRITE_BEHIND_S:
        found["--sandbox-write-behind-window"] = f"counts as {LONGEST_WRITE_BEHIND_S:g}s"
    odd = [domain for domain in settings.allowed_label_domains if not is_object_name(domain)]
    if odd:
        found["--allowed-label-domains"] = f"{odd[0]!r} is not a domain: it allows no label"
    return found | _unused(settings)


def _unused(settings: Settings) -> dict[str, str]:
    """Return, by flag, why a setting has no effect beside others."""
    served = ("enable_pprof", "enable_pprof_debug", "trace_entries", "metrics_secure_serving")
    secured = ("metrics_cert_dir", "tls_min_version", "tls_cipher_suites")
    reasons = (
        (settings.metrics_bind_address == "0", served, "not served with --metrics-bind-address=0"),
        (
            not settings.metrics_secure_serving,
            secured,
            "not used: metrics are served without TLS unless --metrics-secure-serving is given",
        ),
        (
            settings.leader_elect is False,
            ("leader_election_lease",),
            "not used with --leader-elect=false",
        ),
    )
    return {
        flag_of(name): why
        for holds, names, why in reasons
        for name in names
        if holds and getattr(settings, name)
    }
