"""Every option of the controller: its unit, default and consequence, in one place.

The command line, its help and the README are made from these fields.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from lean_sandbox.api.errors import ConfigError
from lean_sandbox.model.times import parse_duration

__all__ = ["Settings", "add_arguments", "flag_of", "from_arguments", "shown_default"]


def _option(
    default: Any,
    help_text: str,
    parse: Callable[[str], Any] = str,
    *,
    metavar: str = "VALUE",
) -> Any:
    return field(default=default, metadata={"help": help_text, "parse": parse, "metavar": metavar})


def _duration_s(text: str) -> float:
    return parse_duration(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the controller is told from outside. Durations are in seconds."""

    kubeconfig: str = _option(
        "",
        "kubeconfig file; empty: KUBECONFIG, then the Pod's service account, then ~/.kube/config",
        metavar="FILE",
    )
    context: str = _option("", "context of the kubeconfig; empty: its current one", metavar="NAME")
    namespaces: tuple[str, ...] = _option(
        (),
        "comma separated namespaces to watch; empty: all. Fewer namespaces need only Roles",
        _names,
        metavar="A,B",
    )
    cluster_domain: str = _option("cluster.local", "suffix of status.serviceFQDN", metavar="DOMAIN")
    sandbox_concurrent_workers: int = _option(
        100, "Sandboxes reconciled at the same time", int, metavar="N"
    )
    max_requests_in_flight: int = _option(
        16,
        "requests in flight to the API server; more than about 16 only queue there",
        int,
        metavar="N",
    )
    kube_api_qps: float = _option(
        -1.0, "requests a second at most; negative: no limit", float, metavar="RATE"
    )
    kube_api_burst: int = _option(10, "requests above the rate before it holds", int, metavar="N")
    page_size: int = _option(
        250, "objects a list page; larger pages need more memory at start", int, metavar="N"
    )
    streams_initial_list: bool = _option(
        default=False,
        help_text="ask for the initial list as a stream; falls back to pages",
        parse=bool,
    )
    watch_representation: str = _option(
        "table",
        "leanest form to ask of a watch: table, metadata or full; the next is used where a server"
        " refuses",
        metavar="FORM",
    )
    sandbox_status_window: float = _option(
        2.0,
        "how long a starting Sandbox may go without a status before an unready one is written; a"
        " launch within it costs one status write, a longer one two",
        _duration_s,
        metavar="DURATION",
    )
    sandbox_status_step_window: float = _option(
        30.0,
        "how long a further unready step waits once one was published, doubling; readiness, errors"
        " and scheduling failures never wait for it",
        _duration_s,
        metavar="DURATION",
    )
    sandbox_write_behind_window: float = _option(
        0.0,
        "delay of metadata patches on a Sandbox's own Pod, at most 1s; 0: at once",
        _duration_s,
        metavar="DURATION",
    )
    cache_label_selectors: bool = _option(
        default=False,
        help_text="watch only Services with the tracking label (Pods are always watched so);"
        " Services without it are then seen only when a create collides with them",
        parse=bool,
    )
    disable_sandbox_events: bool = _option(
        default=False, help_text="write no Events about Sandboxes", parse=bool
    )
    extensions: bool = _option(
        default=False,
        help_text="also serve SandboxClaims, SandboxTemplates and SandboxWarmPools",
        parse=bool,
    )
    sandbox_claim_concurrent_workers: int = _option(
        50, "claims served at the same time", int, metavar="N"
    )
    sandbox_warm_pool_concurrent_workers: int = _option(
        1, "pools looked at at the same time; one pool is always served by one", int, metavar="N"
    )
    sandbox_template_concurrent_workers: int = _option(
        1, "templates looked at at the same time", int, metavar="N"
    )
    sandbox_warm_pool_max_batch_size: int = _option(
        300, "members created or deleted in one pass over a pool at most", int, metavar="N"
    )
    sandbox_warm_pool_replenish_delay: float = _option(
        0.0,
        "how long a pool waits after losing members before it is refilled; 0: not at all",
        _duration_s,
        metavar="DURATION",
    )
    sandbox_warm_pool_max_refill_rate: float = _option(
        0.0, "members created a second in each pool at most; 0: no limit", float, metavar="RATE"
    )
    sandbox_warm_pool_readiness_grace_period: float = _option(
        300.0,
        "a member that is not ready for so long is replaced, unless it waits for a place",
        _duration_s,
        metavar="DURATION",
    )
    sandbox_warm_pool_unschedulable_recheck_interval: float = _option(
        60.0,
        "how often a pool looks at members that wait for a place",
        _duration_s,
        metavar="DURATION",
    )
    enable_warm_pool_eviction: bool = _option(
        default=True, help_text="mark members as safe to evict", parse=bool
    )
    disable_claim_events: bool = _option(
        default=False, help_text="write no Events about claims", parse=bool
    )
    disable_claim_observability_annotations: bool = _option(
        default=False,
        help_text="do not write when a claim was first observed",
        parse=bool,
    )
    allowed_label_domains: tuple[str, ...] = _option(
        ("sandbox.users.io",),
        "comma separated domains of labels that claims may ask for on their Pods",
        _names,
        metavar="A,B",
    )
    metrics_bind_address: str = _option(
        ":8080",
        "where /metrics is served, host:port; no host: every address, port 0: a free one; 0: not"
        " at all",
        metavar="ADDRESS",
    )
    health_probe_bind_address: str = _option(
        ":8081",
        "where /healthz and /readyz are served; empty or 0: not at all, and probes fail",
        metavar="ADDRESS",
    )
    metrics_secure_serving: bool = _option(
        default=False,
        help_text="serve metrics over TLS only, with the certificate of --metrics-cert-dir",
        parse=bool,
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
        _names,
        metavar="A,B",
    )
    enable_rest_client_metrics: bool = _option(
        default=False,
        help_text="also measure how long requests to the API server take, by method",
        parse=bool,
    )
    enable_pprof: bool = _option(
        default=False,
        help_text="serve a CPU profile, as folded stacks, on /debug/pprof/profile of the metrics"
        " listener, to anyone who can reach it",
        parse=bool,
    )
    enable_pprof_debug: bool = _option(
        default=False,
        help_text="serve heap, goroutine (tasks) and cmdline on /debug/pprof/ as well",
        parse=bool,
    )
    leader_elect: bool | None = _option(
        default=None,
        help_text="work only while holding the Lease that replicas contend for; automatic: with"
        " the credential of a Pod's service account yes, with a kubeconfig no",
        parse=bool,
    )
    leader_election_namespace: str = _option(
        "",
        "namespace of the Lease; empty: that of the Pod, and outside a cluster it must be named",
        metavar="NAMESPACE",
    )
    reconcile_deadline: float = _option(
        60.0,
        "one pass over an object is given up and retried after this",
        _duration_s,
        metavar="DURATION",
    )
    request_timeout: float = _option(
        15.0, "deadline of one request", _duration_s, metavar="DURATION"
    )
    shutdown_grace: float = _option(
        20.0, "how long running passes may finish after SIGTERM", _duration_s, metavar="DURATION"
    )
    log_level: str = _option("info", "debug, info, warning or error", metavar="LEVEL")
    log_format: str = _option(
        "auto", "json, console, or auto: console on a terminal, json elsewhere", metavar="FORMAT"
    )

    def __post_init__(self) -> None:
        """Refuse values that cannot work, naming the flag and what would."""
        positive = (
            "sandbox_concurrent_workers",
            "max_requests_in_flight",
            "page_size",
            "kube_api_burst",
            "sandbox_claim_concurrent_workers",
            "sandbox_warm_pool_concurrent_workers",
            "sandbox_warm_pool_max_batch_size",
            "sandbox_warm_pool_readiness_grace_period",
            "sandbox_warm_pool_unschedulable_recheck_interval",
        )
        for name in positive:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{flag_of(name)} must be at least 1, not {getattr(self, name)}")
        for name in ("sandbox_write_behind_window", "sandbox_status_window", "shutdown_grace"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{flag_of(name)} must not be negative")
        if self.metrics_secure_serving and not self.metrics_cert_dir:
            raise ConfigError("--metrics-secure-serving needs --metrics-cert-dir")
        for name in ("reconcile_deadline", "request_timeout"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{flag_of(name)} must be longer than 0s")
        if math.isnan(self.kube_api_qps):
            raise ConfigError("--kube-api-qps must be a number, negative for no limit")
        rate = self.sandbox_warm_pool_max_refill_rate
        if not math.isfinite(rate) or rate < 0:
            raise ConfigError(f"--sandbox-warm-pool-max-refill-rate must be 0 or more, not {rate}")
        choices = {
            "watch_representation": ("table", "metadata", "full"),
            "log_level": ("debug", "info", "warning", "error"),
            "log_format": ("auto", "json", "console"),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(
                    f"{flag_of(name)} must be one of {', '.join(allowed)}, not {value!r}"
                )


_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def _boolean(text: str) -> bool:
    if text not in _TRUE and text not in _FALSE:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text in _TRUE


class _Switch(argparse.BooleanOptionalAction):
    """``--x`` and ``--no-x``, and ``--x=true`` and ``--x=false`` as the reference has it."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, **options)
        self.nargs = "?"
        self.type = _boolean
        self.metavar = "BOOL"

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 -- the signature is argparse's
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        is_negated = option_string is not None and option_string.startswith("--no-")
        if is_negated and values is not None:
            raise argparse.ArgumentError(self, "takes no value")
        setattr(namespace, self.dest, not is_negated if values is None else values)


def flag_of(name: str) -> str:
    """Return the flag of a setting."""
    return "--" + name.replace("_", "-")


def shown_default(option: Field[Any]) -> str:
    """Return the default of a setting as help and README show it."""
    default = option.default
    if default is None:
        return "automatic"
    if default in ("", ()):
        return "none"
    if option.metadata["parse"] is _duration_s:
        return f"{default:g}s"
    return str(default)


def add_arguments(parser: argparse.ArgumentParser, only: Sequence[str] = ()) -> None:
    """Add one flag for each setting to ``parser``, or for those named in ``only``."""
    for option in fields(Settings):
        if only and option.name not in only:
            continue
        help_text = f"{option.metadata['help']} (default: {shown_default(option)})"
        if option.metadata["parse"] is bool:
            parser.add_argument(
                flag_of(option.name),
                dest=option.name,
                action=_Switch,
                default=None,
                help=option.metadata["help"],
            )
        else:
            parser.add_argument(
                flag_of(option.name),
                dest=option.name,
                default=None,
                metavar=option.metadata["metavar"],
                help=help_text,
            )


def from_arguments(arguments: argparse.Namespace) -> Settings:
    """Build the settings from parsed flags. Raises :class:`ConfigError` naming the flag."""
    values: dict[str, Any] = {}
    for option in fields(Settings):
        given = getattr(arguments, option.name, None)
        if given is None:
            continue
        if isinstance(given, bool):
            values[option.name] = given
            continue
        try:
            values[option.name] = option.metadata["parse"](given)
        except ValueError as error:
            raise ConfigError(f"{flag_of(option.name)}: {given!r} is not valid: {error}") from error
    return Settings(**values)
