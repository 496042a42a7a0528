"""Every option of the controller: its unit, default and consequence, in one place.

The command line, the environment, the config file, their help and docs/configuration.md are made
from these fields. Names, defaults and meanings that the reference has too are the reference's.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any

from lean_sandbox.config.checks import check
from lean_sandbox.config.values import (
    BOOLEAN,
    DOMAINS,
    DURATION,
    INTEGER,
    LABEL_SELECTOR,
    NAMES,
    NAMESPACES,
    NUMBER,
    SHARD,
    TEXT,
    Form,
    choice,
)


def _option(
    default: Any, help_text: str, form: Form = TEXT, *, unit: str = "", metavar: str = ""
) -> Any:
    metadata = {"help": help_text, "form": form, "unit": unit, "metavar": metavar or form.metavar}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the controller is told from outside. Durations are in seconds."""

    kubeconfig: str = _option(
        "",
        "kubeconfig file; empty: KUBECONFIG, then the Pod's service account, then ~/.kube/config",
        metavar="FILE",
    )
    context: str = _option("", "context of the kubeconfig; empty: its current one", metavar="NAME")
    max_requests_in_flight: int = _option(
        16,
        "requests in flight to the API server; more than about 16 only queue there",
        INTEGER,
        unit="requests",
    )
    kube_api_qps: float = _option(
        -1.0, "requests a second at most; negative: no limit", NUMBER, unit="requests/s"
    )
    kube_api_burst: int = _option(
        10, "requests above the rate before it holds", INTEGER, unit="requests"
    )
    request_timeout: float = _option(
        15.0, "deadline of one request; one that takes longer is given up and retried", DURATION
    )
    namespaces: tuple[str, ...] = _option(
        (),
        "comma separated namespaces to watch; empty: all. Fewer namespaces need only Roles",
        NAMESPACES,
    )
    exclude_namespaces: tuple[str, ...] = _option(
        (),
        "comma separated namespaces to leave alone; the server does not send what is in them, and"
        " what was begun there stays as it is",
        NAMESPACES,
    )
    sandbox_label_selector: str = _option(
        "",
        "serve only Sandboxes with these labels (a=b,c in (d,e),!f); one that loses them is"
        " forgotten and nothing of it is deleted. Not with --extensions",
        LABEL_SELECTOR,
    )
    shard: str = _option(
        "",
        "serve only those namespaces whose names, hashed, fall to this one of COUNT controllers, as"
        " in 0/2; an INDEX counts modulo COUNT. The server still sends what is in the others, which"
        " is dropped; empty: all namespaces",
        SHARD,
    )
    page_size: int = _option(
        250,
        "objects a list page at most; large objects come in pages of about 2 MiB",
        INTEGER,
        unit="objects",
    )
    streams_initial_list: bool = _option(
        default=False,
        help_text="ask for the initial list as a stream; falls back to pages",
        form=BOOLEAN,
    )
    watch_representation: str = _option(
        "cells",
        "leanest form to ask of a watch: cells (of Pods, in busy namespaces), table, metadata or"
        " full; the next is used where a server refuses",
        choice("cells", "table", "metadata", "full", metavar="FORM"),
    )
    cache_label_selectors: bool = _option(
        default=False,
        help_text="watch only Services with the tracking label (Pods are always watched so);"
        " Services without it are then seen only when a create collides with them",
        form=BOOLEAN,
    )
    cluster_domain: str = _option("cluster.local", "suffix of status.serviceFQDN", metavar="DOMAIN")
    sandbox_concurrent_workers: int = _option(
        100, "Sandboxes reconciled at the same time", INTEGER, unit="Sandboxes"
    )
    sandbox_status_window: float = _option(
        2.0,
        "how long a starting Sandbox may go without a status before an unready one is written; a"
        " launch within it costs one status write, a longer one two",
        DURATION,
    )
    sandbox_status_step_window: float = _option(
        30.0,
        "how long a further unready step waits once one was published, doubling; readiness, errors"
        " and scheduling failures never wait for it",
        DURATION,
    )
    sandbox_write_behind_window: float = _option(
        0.0,
        "delay of metadata patches on a Sandbox's own Pod, at most 1s; 0: at once",
        DURATION,
    )
    disable_sandbox_events: bool = _option(
        default=False, help_text="write no Events about Sandboxes", form=BOOLEAN
    )
    reconcile_deadline: float = _option(
        60.0, "one pass over an object is given up and retried after this", DURATION
    )
    shutdown_grace: float = _option(
        20.0, "how long running passes may finish after SIGTERM", DURATION
    )
    extensions: bool = _option(
        default=False,
        help_text="also serve SandboxClaims, SandboxTemplates and SandboxWarmPools",
        form=BOOLEAN,
    )
    sandbox_claim_concurrent_workers: int = _option(
        50, "claims served at the same time", INTEGER, unit="claims"
    )
    sandbox_claim_warm_candidate_grace_period: float = _option(
        2.0,
        "how long a new claim waits for members of its pool that are on their way up, before it is"
        " given a Sandbox of its own; 0: not at all",
        DURATION,
    )
    sandbox_warm_pool_concurrent_workers: int = _option(
        1,
        "pools looked at at the same time; one pool is always served by one",
        INTEGER,
        unit="pools",
    )
    sandbox_template_concurrent_workers: int = _option(
        1, "templates looked at at the same time", INTEGER, unit="templates"
    )
    sandbox_warm_pool_max_batch_size: int = _option(
        300,
        "members created or deleted in one pass over a pool at most",
        INTEGER,
        unit="members",
    )
    sandbox_warm_pool_replenish_delay: float = _option(
        0.0,
        "how long a pool waits after losing members before it is refilled; 0: not at all",
        DURATION,
    )
    sandbox_warm_pool_max_refill_rate: float = _option(
        0.0,
        "members created a second in each pool at most; 0: no limit",
        NUMBER,
        unit="members/s",
    )
    sandbox_warm_pool_readiness_grace_period: float = _option(
        300.0,
        "a member that is not ready for so long is replaced, unless it waits for a place",
        DURATION,
    )
    sandbox_warm_pool_unschedulable_recheck_interval: float = _option(
        60.0, "how often a pool looks at members that wait for a place", DURATION
    )
    enable_warm_pool_eviction: bool = _option(
        default=True, help_text="mark members as safe to evict", form=BOOLEAN
    )
    disable_claim_events: bool = _option(
        default=False, help_text="write no Events about claims", form=BOOLEAN
    )
    disable_claim_observability_annotations: bool = _option(
        default=False, help_text="do not write when a claim was first observed", form=BOOLEAN
    )
    allowed_label_domains: tuple[str, ...] = _option(
        ("sandbox.users.io",),
        "comma separated domains of labels that claims may ask for on their Pods; where it is not"
        " given, /etc/sandbox-config/allowed-label-domains is read if it exists",
        DOMAINS,
    )
    config_map_namespace: str = _option(
        "",
        "namespace of the ConfigMap agent-sandbox-config, whose keys are flags; empty: that of the"
        " Pod, and outside a cluster none is read",
        metavar="NAMESPACE",
    )
    leader_elect: bool | None = _option(
        default=None,
        help_text="work only while holding the Lease that replicas contend for; automatic: with"
        " the credential of a Pod's service account yes, with a kubeconfig no",
        form=BOOLEAN,
    )
    leader_election_namespace: str = _option(
        "",
        "namespace of the Lease; empty: that of the Pod, and outside a cluster it must be named",
        metavar="NAMESPACE",
    )
    allow_second_controller: bool = _option(
        default=False,
        help_text="run although a controller works in the cluster already; without this, and"
        " without an election, a run from outside of the cluster looks for its Lease and its"
        " Deployment first and refuses",
        form=BOOLEAN,
    )
    leader_election_lease: str = _option(
        "",
        "name of the Lease; each shard needs another. Empty: a3317529.agent-sandbox.x-k8s.io, so"
        " that the reference never works at the same time, and with --shard one for each of them",
        metavar="NAME",
    )
    metrics_bind_address: str = _option(
        ":8080",
        "where /metrics is served, host:port; no host: every address, port 0: a free one; 0: not"
        " at all. Outside of a Pod the default is 127.0.0.1:8080",
        metavar="ADDRESS",
    )
    health_probe_bind_address: str = _option(
        ":8081",
        "where /healthz and /readyz are served; empty or 0: not at all, and probes fail. Outside"
        " of a Pod the default is 127.0.0.1:8081",
        metavar="ADDRESS",
    )
    metrics_secure_serving: bool = _option(
        default=False,
        help_text="serve metrics over TLS only, with the certificate of --metrics-cert-dir",
        form=BOOLEAN,
    )
    metrics_cert_dir: str = _option(
        "",
        "folder of tls.crt and tls.key for --metrics-secure-serving; read again when they change",
        metavar="DIR",
    )
    tls_min_version: str = _option(
        "",
        "oldest TLS version of the metrics listener: VersionTLS10 to VersionTLS13; empty:"
        " VersionTLS12",
        metavar="VERSION",
    )
    tls_cipher_suites: tuple[str, ...] = _option(
        (),
        "comma separated cipher suites of the metrics listener, by their IANA names; empty: those"
        " of OpenSSL. Those of TLS 1.3 cannot be chosen",
        NAMES,
    )
    enable_rest_client_metrics: bool = _option(
        default=False,
        help_text="also measure how long requests to the API server take, by method",
        form=BOOLEAN,
    )
    enable_pprof: bool = _option(
        default=False,
        help_text="serve a CPU profile, as folded stacks, on /debug/pprof/profile of the metrics"
        " listener, to anyone who can reach it",
        form=BOOLEAN,
    )
    enable_pprof_debug: bool = _option(
        default=False,
        help_text="serve heap, goroutine (tasks) and cmdline on /debug/pprof/ as well",
        form=BOOLEAN,
    )
    enable_tracing: bool = _option(
        default=False,
        help_text="send a span of each pass over a Sandbox to where OTEL_EXPORTER_OTLP_ENDPOINT"
        " says, and leave its context on the Sandbox; needs the extra `tracing`",
        form=BOOLEAN,
    )
    trace_entries: int = _option(
        0,
        "events, passes and requests kept in memory for `lean-sandbox trace`, at 0.3 KiB each; the"
        " oldest is overwritten. Served on /debug/trace of the metrics listener, to anyone who can"
        " reach it; 0: none are kept",
        INTEGER,
        unit="entries",
    )
    log_level: str = _option(
        "info",
        "debug, info, warning or error; lines below it are not written",
        choice("debug", "info", "warning", "error", metavar="LEVEL"),
    )
    log_format: str = _option(
        "auto",
        "json, console, or auto: console on a terminal, json elsewhere",
        choice("auto", "json", "console", metavar="FORMAT"),
    )

    def __post_init__(self) -> None:
        """Refuse values that cannot work, naming the flag and what would."""
        check(self)


# By the name of its first option: the topics in the order of the fields.
TOPICS = {
    "kubeconfig": "API server",
    "namespaces": "what is watched, and how",
    "cluster_domain": "Sandboxes",
    "extensions": "claims, templates and pools",
    "leader_elect": "replicas",
    "metrics_bind_address": "metrics, health, profiles and traces",
    "log_level": "log",
}


def topics() -> dict[str, list[Field[Any]]]:
    """Return the options by the topic under which help shows them."""
    grouped: dict[str, list[Field[Any]]] = {}
    topic = ""
    for option in fields(Settings):
        topic = TOPICS.get(option.name, topic)
        grouped.setdefault(topic, []).append(option)
    return grouped


def flag_of(name: str) -> str:
    """Return the flag of a setting."""
    return "--" + name.replace("_", "-")


def form_of(option: Field[Any]) -> Form:
    """Return how the values of a setting are read and written."""
    form: Form = option.metadata["form"]
    return form


def shown(option: Field[Any], value: Any) -> str:
    """Return a value of a setting as people are shown it."""
    if value is None:
        return "automatic"
    return form_of(option).write(value) or "none"


def shown_default(option: Field[Any]) -> str:
    """Return the default of a setting as help and docs show it."""
    return shown(option, option.default)
