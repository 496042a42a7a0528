"""The table of options: name, default, meaning, form, bound and scope of each, in one place.

Every source, the help and docs/configuration.md are made from it. Options that the reference has
too have the same name, default and meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from filters import EVERYTHING, LabelSelector
from lean_sandbox.config.declare import (
    Option,
    count,
    dns_name,
    duration,
    flag_of,
    namespace_name,
    not_nan,
    not_negative,
    number,
    option,
    own,
    own_switch,
    positive,
    switch,
)
from lean_sandbox.config.forms import (
    BOOLEAN,
    DOMAINS,
    INTEGER,
    LABEL_SELECTOR,
    NAMES,
    NAMESPACES,
    REPRESENTATION,
    SHARD,
    Form,
    address,
    choice,
)
from lean_sandbox.errors import ConfigError
from lean_sandbox.model.shard import Shard
from lean_sandbox.watch.kind import Representation

#: The companions that there are.
COMPANIONS: Final = ("autosize", "defaults", "idle", "recreate", "rollout")
#: The companions that work on claims and pools.
OF_EXTENSIONS: Final = frozenset({"autosize", "defaults", "rollout"})
#: The longest delay of metadata patches on a Pod; a longer value of the option counts as this.
LONGEST_WRITE_BEHIND_S: Final = 1.0
# The sections of the help, by their first options.
_TOPICS: Final = {
    "kubeconfig": "API server",
    "namespaces": "what is watched, and how",
    "cluster_domain": "Sandboxes",
    "extensions": "claims, templates and pools",
    "companions": "companions",
    "leader_elect": "replicas",
    "metrics_bind_address": "metrics, health, profiles and traces",
    "log_level": "log",
}


def _known_companions(chosen: tuple[str, ...]) -> str:
    unknown = sorted(set(chosen) - set(COMPANIONS))
    return f"can name only {', '.join(COMPANIONS)}" if unknown else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values of all options for one controller. Durations are in seconds."""

    kubeconfig: str = own(
        "kubeconfig file; empty: KUBECONFIG, then the Pod's service account, then ~/.kube/config",
        Form("FILE"),
    )
    context: str = own("context of the kubeconfig; empty: its current one", Form("NAME"))
    max_requests_in_flight: int = count(
        32, "requests in flight to the API server; more than about 32 only queue there", "requests"
    )
    kube_api_qps: float = number(
        -1.0, "requests a second at most; 0 or negative: no limit", "requests/s", not_nan
    )
    kube_api_burst: int = count(10, "requests at once that may exceed that rate", "requests")
    request_timeout: float = duration(
        15.0, "deadline of one request; one that takes longer is given up and retried", positive
    )
    namespaces: tuple[str, ...] = own(
        "comma separated namespaces to watch; empty: all. With a list Roles are enough; a namespace"
        " where a kind may not be listed is passed over until it may be",
        NAMESPACES,
        (),
    )
    exclude_namespaces: tuple[str, ...] = own(
        "comma separated namespaces to leave alone; the server does not send their objects, and"
        " what was begun there stays as it is",
        NAMESPACES,
        (),
    )
    sandbox_label_selector: LabelSelector = own(  # noqa: RUF009 -- a field
        "serve only Sandboxes with these labels (a=b,c in (d,e),!f); one that loses them is no"
        " longer served, and nothing of it is deleted. Not with --extensions",
        LABEL_SELECTOR,
        EVERYTHING,
    )
    shard: Shard | None = own(  # noqa: RUF009 -- a field
        "serve only one shard of the namespaces, by the hash of their names: INDEX of COUNT, as in"
        " 0/2. Empty: all namespaces. An INDEX counts modulo COUNT. The server still sends the"
        " others, which are dropped; a server that knows shardSelector does not, if bounds of hash"
        " ranges are given in the place of COUNT (docs/scale.md)",
        SHARD,
        None,
    )
    page_size: int = count(
        250, "objects per list page at most; large objects come in pages of about 2 MiB", "objects"
    )
    watch_representation: Representation = option(  # noqa: RUF009 -- a field
        "leanest form to ask of a watch: table, metadata or full; the next is used where a server"
        " refuses",
        REPRESENTATION,
        Representation.TABLE,
    )
    cache_label_selectors: bool = switch(
        "watch only Services with the tracking label (Pods are always watched so);"
        " Services without it are then seen only when a create collides with them"
    )
    cluster_domain: str = option(
        "suffix of status.serviceFQDN", Form("DOMAIN"), "cluster.local", bound=dns_name
    )
    sandbox_concurrent_workers: int = count(
        100, "Sandboxes reconciled at the same time", "Sandboxes"
    )
    sandbox_status_window: float = duration(
        2.0,
        "how long to wait before a first, not-ready status of a launch is written; a faster launch"
        " costs one status write, a slower one two",
    )
    sandbox_status_step_window: float = duration(
        30.0,
        "how long each further not-ready status of a launch waits, doubling; readiness, an address,"
        " errors and scheduling failures never wait for it",
    )
    sandbox_write_behind_window: float = duration(
        0.0, "delay of metadata patches on a Sandbox's own Pod, at most 1s; 0: at once"
    )
    disable_sandbox_events: bool = switch("write no Events about Sandboxes")
    extensions: bool = own_switch("also serve SandboxClaims, SandboxTemplates and SandboxWarmPools")
    sandbox_claim_concurrent_workers: int = count(50, "claims served at the same time", "claims")
    sandbox_claim_warm_candidate_grace_period: float = duration(
        2.0,
        "how long a new claim waits for members of its pool that are starting, before it gets a"
        " Sandbox of its own; 0: not at all",
    )
    sandbox_warm_pool_concurrent_workers: int = count(
        1, "pools reconciled at the same time, each by one worker", "pools"
    )
    # The reference checks the workers of every kind but this.
    sandbox_template_concurrent_workers: int = count(
        1, "templates reconciled at the same time", "templates", None
    )
    sandbox_warm_pool_max_batch_size: int = count(
        300, "members created or deleted in one reconcile of a pool at most", "members"
    )
    sandbox_warm_pool_replenish_delay: float = duration(
        0.0, "how long a pool waits after losing members before it is refilled; 0: not at all", None
    )
    sandbox_warm_pool_max_refill_rate: float = number(
        0.0, "members created a second in each pool at most; 0: no limit", "members/s", not_negative
    )
    sandbox_warm_pool_readiness_grace_period: float = duration(
        300.0,
        "a member that is unready for this long is replaced, unless it cannot be scheduled "
        "or is refused",
        positive,
    )
    sandbox_warm_pool_unschedulable_recheck_interval: float = duration(
        60.0, "how often a pool checks members that cannot be scheduled", positive
    )
    enable_warm_pool_eviction: bool = switch("mark members as safe to evict", default=True)
    disable_claim_events: bool = switch("write no Events about claims")
    disable_claim_observability_annotations: bool = switch(
        "do not write when a claim was first observed"
    )
    allowed_label_domains: tuple[str, ...] = option(
        "comma separated domains of labels that claims may ask for on their Pods",
        DOMAINS,
        ("sandbox.users.io",),
    )
    companions: tuple[str, ...] = own(
        "comma separated companions to run: " + ", ".join(COMPANIONS) + " (docs/companions.md)",
        NAMES,
        (),
        bound=_known_companions,
    )
    idle_cpu: float = number(
        0.02,
        "how many cores a Sandbox uses at least while it is in use, for the companion idle; 0: CPU"
        " does not count",
        "cores",
        not_negative,
    )
    leader_elect: bool | None = own(
        "be active only while holding the Lease of the replicas. Automatic: yes; with a kubeconfig,"
        " do not start beside an active controller, and go without a Lease where none may be made",
        BOOLEAN,
        None,
    )
    leader_election_namespace: str = own(
        "namespace of the Lease; empty: that of the Pod, outside a cluster agent-sandbox-system",
        Form("NAMESPACE"),
        bound=namespace_name,
    )
    allow_second_controller: bool = own_switch(
        "run outside of the cluster even if a controller is active in it, and without its Lease."
        " Otherwise, unless --leader-elect is given, such a run refuses to start if it finds the"
        " Lease or the Deployment of an active controller"
    )
    leader_election_lease: str = own(
        "name of the Lease; each shard needs its own. Empty: a3317529.agent-sandbox.x-k8s.io, so"
        " that the reference is never active at the same time; with --shard one for each shard",
        Form("NAME"),
        bound=dns_name,
    )
    metrics_bind_address: str = own(
        "where /metrics is served, host:port; no host: every address, port 0: a free one; 0: not"
        " at all. Outside of a Pod :8080 means 127.0.0.1:8080",
        address(":8080"),
        ":8080",
    )
    health_probe_bind_address: str = own(
        "where /healthz and /readyz are served; empty or 0: not at all, and probes fail. Outside"
        " of a Pod :8081 means 127.0.0.1:8081",
        address("0"),
        ":8081",
    )
    metrics_secure_serving: bool = own_switch(
        "serve metrics over TLS only, with the certificate of --metrics-cert-dir"
    )
    metrics_cert_dir: str = own(
        "folder of tls.crt and tls.key for --metrics-secure-serving; read again when they change",
        Form("DIR"),
    )
    tls_min_version: str = own(
        "oldest TLS version of the metrics listener: VersionTLS12 or VersionTLS13; empty:"
        " VersionTLS12",
        Form("VERSION"),
    )
    tls_cipher_suites: tuple[str, ...] = own(
        "comma separated cipher suites of the metrics listener, by their IANA names; empty: those"
        " of OpenSSL. Those of TLS 1.3 cannot be chosen",
        NAMES,
        (),
    )
    enable_rest_client_metrics: bool = switch(
        "also measure how long requests to the API server take, by method"
    )
    enable_pprof: bool = own_switch(
        "serve a CPU profile, as folded stacks, on /debug/pprof/profile of the metrics"
        " listener, to anyone who can reach it"
    )
    enable_pprof_debug: bool = own_switch(
        "serve heap, goroutine (tasks) and cmdline on /debug/pprof/ as well"
    )
    enable_tracing: bool = own_switch(
        "send a span of each reconcile of a Sandbox to where OTEL_EXPORTER_OTLP_ENDPOINT"
        " says, and leave its context on the Sandbox; needs the extra `tracing`"
    )
    trace_entries: int = own(
        "events, reconciles and requests kept in memory for `lean-sandbox trace`, at 0.3 KiB each;"
        " the oldest is overwritten. Served on /debug/trace of the metrics listener, to anyone who"
        " can reach it; 0: none are kept",
        INTEGER,
        0,
        unit="entries",
        bound=not_negative,
    )
    log_level: str = option(
        "debug, info, warning or error; lines below it are not written",
        choice("debug", "info", "warning", "error", metavar="LEVEL"),
        "info",
    )
    log_format: str = option(
        "json, console, or auto: console on a terminal, json elsewhere",
        choice("auto", "json", "console", metavar="FORMAT"),
        "auto",
    )

    def __post_init__(self) -> None:
        _check(self)


OPTIONS: Final = {
    one.name.replace("_", "-"): Option(
        name=one.name, default=one.default, topic=_TOPICS.get(one.name, ""), **one.metadata
    )
    for one in fields(Settings)
}
"""Every option by its flag without dashes, in the order of the help."""


def _check(settings: Settings) -> None:
    """Raise ConfigError for a value out of bounds, or for values that exclude each other."""
    for one in OPTIONS.values():
        value = getattr(settings, one.name)
        wrong = one.bound(value) if one.bound is not None else ""
        if wrong:
            raise ConfigError(f"{flag_of(one.name)} {wrong}, not {one.form.write(value)!r}")
    _check_together(settings)


def _check_together(settings: Settings) -> None:
    both = sorted(set(settings.namespaces) & set(settings.exclude_namespaces))
    if both:
        raise ConfigError(
            f"{', '.join(both)} cannot be both in --namespaces and in --exclude-namespaces",
            way_out="take it out of one of them",
        )
    if settings.shard is not None and settings.namespaces:
        raise ConfigError(
            "--shard cannot go with --namespaces: one divides all namespaces, the other names its"
            " own",
            way_out="give one of the two; --exclude-namespaces goes with --shard",
        )
    if settings.sandbox_label_selector != EVERYTHING and settings.extensions:
        raise ConfigError(
            "--sandbox-label-selector cannot go with --extensions: claims and pools would not see"
            " the Sandboxes they make",
            way_out="divide the work by --namespaces instead, or serve claims in another process",
        )
    unserved = sorted(OF_EXTENSIONS.intersection(settings.companions))
    if unserved and not settings.extensions:
        raise ConfigError(
            f"--companions={','.join(unserved)} needs --extensions",
            way_out="add --extensions, or name others",
        )
    if settings.metrics_secure_serving and not settings.metrics_cert_dir:
        raise ConfigError("--metrics-secure-serving needs --metrics-cert-dir")
