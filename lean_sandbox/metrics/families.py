"""Every metric that is exposed: its name, labels, buckets and meaning, in one place.

Names, labels and buckets of all but ``lean_sandbox_...`` are those of the reference controller and
its framework, so that dashboards and alerts keep working.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from lean_sandbox.metrics.registry import Family

# The bounds dashboards for Kubernetes controllers expect, so that existing queries keep working.
# Multiplied up as there: in queries a bound is a text, with the same rounding errors.
WORKQUEUE_BUCKETS_S: Final[tuple[float, ...]] = tuple(
    accumulate(range(11), lambda bound, _: bound * 10.0, initial=1e-8)
)
RECONCILE_BUCKETS_S: Final[tuple[float, ...]] = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
    *(6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)
_STARTUP_BUCKETS_MS: Final = (
    *(100.0, 250.0, 500.0, 750.0, 1000.0, 1250.0, 1500.0, 2000.0, 2500.0, 5000.0),
    *(10000.0, 30000.0, 60000.0, 120000.0, 240000.0),
)
_LIFE_BUCKETS_MS: Final = (
    *(50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0, 30000.0, 60000.0),
    *(120000.0, 240000.0, 300000.0, 600000.0),
)
_REQUEST_BUCKETS_S: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
)

FAMILIES: Final[dict[str, Family]] = {}


def _family(series: str, meaning: str, buckets: tuple[float, ...] = ()) -> Family:
    """Declare a family: a histogram with buckets, a counter ``..._total``, or else a gauge."""
    name, _, labels = series.removesuffix("}").partition("{")
    family = Family(name, tuple(labels.split(",")) if labels else (), meaning, buckets)
    FAMILIES[name] = family
    return family


# -- Sandboxes, pools and claims -------------------------------------------------------------------

SANDBOXES = _family(
    "agent_sandboxes{namespace,ready_condition,expired,launch_type,sandbox_template,owned_by,"
    "created_by,operating_mode}",
    "Sandboxes known at this moment; operating_mode is what is asked for: Running or Suspended.",
)
POOL_SIZE = _family(
    "agent_sandbox_warmpool_size{namespace,warmpool_name,sandbox_template,sandbox_status}",
    "Members of each pool at this moment, by status: ready, pending, succeeded or failed.",
)
BUILD_INFO = _family(
    "agent_sandbox_build_info{git_version,git_commit,build_date,go_version,compiler,platform}",
    "Always 1; the labels say what is running. go_version and compiler are those of Python.",
)
SUSPENDS = _family(
    "agent_sandbox_suspend_total{namespace,sandbox_template,owned_by,result}",
    "Steps of suspending: requested, pod_terminated, and error for each failed reconcile between.",
)
RESUMES = _family(
    "agent_sandbox_resume_total{namespace,sandbox_template,owned_by,result}",
    "Steps of resuming: requested, ready, and error for each failed reconcile between.",
)
FINISHED = _family(
    "agent_sandbox_finished_total{namespace,sandbox_template,owned_by,reason}",
    "Sandboxes whose Pod ran to its end, by its outcome.",
)
EXPIRED = _family(
    "agent_sandbox_expired_total{namespace,sandbox_template,owned_by,shutdown_policy}",
    "Sandboxes that reached their shutdownTime.",
)
SUSPEND_LATENCY = _family(
    "agent_sandbox_suspend_latency_ms{namespace,sandbox_template,owned_by}",
    "Milliseconds from the first look at operatingMode Suspended until Suspended is True.",
    _LIFE_BUCKETS_MS,
)
RESUME_LATENCY = _family(
    "agent_sandbox_resume_latency_ms{namespace,sandbox_template,owned_by}",
    "Milliseconds from the first look at operatingMode Running, after Suspended was True, until"
    " Ready.",
    _LIFE_BUCKETS_MS,
)
CREATION_LATENCY = _family(
    "agent_sandbox_creation_latency_ms{namespace,launch_type,sandbox_template}",
    "Milliseconds from the creation of a claimed Sandbox to its Ready condition; of a warm one that"
    " is how long its pool took to provide it.",
    _LIFE_BUCKETS_MS,
)
CLAIM_STARTUP = _family(
    "agent_sandbox_claim_startup_latency_ms{launch_type,sandbox_template}",
    "Milliseconds from a claim's annotation agents.x-k8s.io/webhook-first-observed-at to Ready;"
    " only of claims that carry it.",
    _STARTUP_BUCKETS_MS,
)
CLAIM_CONTROLLER_STARTUP = _family(
    "agent_sandbox_claim_controller_startup_latency_ms{launch_type,sandbox_template}",
    "Milliseconds from the controller's first sight of a claim to Ready.",
    _STARTUP_BUCKETS_MS,
)
CLAIM_CLIENT_STARTUP = _family(
    "agent_sandbox_client_claim_startup_latency_ms{launch_type,sandbox_template}",
    "Milliseconds from a claim's annotation agents.x-k8s.io/client-first-requested-at to Ready;"
    " only of claims that carry it, and as true as the client's clock.",
    _STARTUP_BUCKETS_MS,
)
CLAIM_CREATIONS = _family(
    "agent_sandbox_claim_creation_total{namespace,sandbox_template,launch_type,warmpool_name,"
    "pod_condition,created_by}",
    "Sandboxes created or adopted for claims.",
)

# -- the framework's -------------------------------------------------------------------------------

RECONCILES = _family(
    "controller_runtime_reconcile_total{controller,result}",
    "Reconciles by their result: success, error, requeue or requeue_after.",
)
RECONCILE_ERRORS = _family(
    "controller_runtime_reconcile_errors_total{controller}", "Reconciles that failed."
)
TERMINAL_ERRORS = _family(
    "controller_runtime_terminal_reconcile_errors_total{controller}",
    "Failed reconciles that are not repeated.",
)
PANICS = _family(
    "controller_runtime_reconcile_panics_total{controller}",
    "Reconciles that ended with an unexpected error; each is a bug.",
)
TIMEOUTS = _family(
    "controller_runtime_reconcile_timeouts_total{controller}",
    "Reconciles that were cancelled at their deadline.",
)
RECONCILE_TIME = _family(
    "controller_runtime_reconcile_time_seconds{controller}",
    "Seconds a reconcile took.",
    RECONCILE_BUCKETS_S,
)
MAX_RECONCILES = _family(
    "controller_runtime_max_concurrent_reconciles{controller}",
    "Reconciles that may run at the same time.",
)
ACTIVE_WORKERS = _family(
    "controller_runtime_active_workers{controller}", "Reconciles that are running."
)
QUEUE_DEPTH = _family(
    "workqueue_depth{name,controller,priority}", "Keys whose reconcile may begin now."
)
QUEUE_ADDS = _family(
    "workqueue_adds_total{name,controller}", "Keys added that were not in the queue already."
)
QUEUE_DURATION = _family(
    "workqueue_queue_duration_seconds{name,controller}",
    "Seconds a key waited for its reconcile after it was due.",
    WORKQUEUE_BUCKETS_S,
)
WORK_DURATION = _family(
    "workqueue_work_duration_seconds{name,controller}",
    "Seconds a key was locked by its reconcile.",
    WORKQUEUE_BUCKETS_S,
)
UNFINISHED_WORK = _family(
    "workqueue_unfinished_work_seconds{name,controller}",
    "Seconds that running reconciles have taken so far.",
)
LONGEST_RUNNING = _family(
    "workqueue_longest_running_processor_seconds{name,controller}",
    "Seconds that the longest running reconcile has taken so far.",
)
QUEUE_RETRIES = _family(
    "workqueue_retries_total{name,controller}", "Keys added again with backoff."
)
REST_REQUESTS = _family(
    "rest_client_requests_total{code,method,host}",
    "Finished requests to the API server; code <error> for those without an answer.",
)
REST_DURATION = _family(
    "rest_client_request_duration_seconds{verb,host}",
    "Seconds from the first byte of a request to the last of its answer, without watches; only with"
    " --enable-rest-client-metrics.",
    _REQUEST_BUCKETS_S,
)
REST_RETRIES = _family(
    "rest_client_request_retries_total{code,verb,host}",
    "Requests sent again, by the code of the answer before (<error> for a dead connection) and the"
    " method; only with --enable-rest-client-metrics.",
)
LEADER = _family(
    "leader_election_master_status{name}",
    "1 while this process holds the Lease of this name, else 0; absent without leader election.",
)
LEASE_FAILURES = _family(
    "lean_sandbox_lease_failures_total{error}",
    "Attempts to acquire, renew or release the Lease that failed, by the class of the error;"
    " Conflict is a lost race.",
)

# -- what only this controller counts --------------------------------------------------------------

EVENTS = _family(
    "lean_sandbox_watch_events_total{resource,outcome}",
    "Objects that lists and watches showed: passed (relevant), dropped_unchanged (no predicate saw"
    " a change), dropped_known (the echo of an own write, or older than what is known),"
    " dropped_elsewhere (in a namespace of another shard).",
)
PREDICATES = _family(
    "lean_sandbox_watch_changes_total{resource,predicate}",
    "Events that a predicate let pass; one event may count for several.",
)
HANDLER_FAILURES = _family(
    "lean_sandbox_watch_handler_failures_total{resource}",
    "Changes of an object on which a handler of the controller raised an error; each is a bug.",
)
WATCH_BYTES = _family(
    "lean_sandbox_watch_received_bytes_total{resource}", "Bytes of the bodies of lists and watches."
)
WATCH_STEPS = _family(
    "lean_sandbox_watch_steps_total{resource,step}",
    "Steps of lists and watches: list, page, watch, bookmark, relist (the version was too"
    " old), fallback (to a less lean form), failure, undecodable (objects skipped).",
)
WATCH_PROBLEMS = _family(
    "lean_sandbox_watch_failing{resource}", "1 while a watch of this kind is failing, else 0."
)
WATCH_SILENCE = _family(
    "lean_sandbox_watch_silence_seconds{resource}",
    "Seconds since the server last sent anything of this kind; bookmarks come about every minute.",
)
CACHE_OBJECTS = _family("lean_sandbox_cache_objects{resource}", "Objects remembered.")
REQUESTS = _family(
    "lean_sandbox_requests_total{verb,resource,code}",
    "Finished requests to the API server; code 0 for those without an answer.",
)
CLIENT_BYTES = _family(
    "lean_sandbox_client_bytes_total{direction}",
    "Bytes of HTTP messages to and from the API server, before TLS: sent or received.",
)
CONNECTIONS = _family(
    "lean_sandbox_client_connections_total", "Connections opened to the API server."
)
TOKEN_READS_FAILED = _family(
    "lean_sandbox_client_token_reads_failed_total",
    "Reads of the token file that failed; the previous token stays in use.",
)
IN_FLIGHT = _family(
    "lean_sandbox_client_requests_in_flight{rank,state}",
    "Requests that hold a slot (running) or wait for one (waiting), by rank.",
)
STREAMS = _family("lean_sandbox_client_streams", "Watches that are open.")
QUEUE_WAITING = _family(
    "lean_sandbox_queue_keys{controller,state}",
    "Keys that wait: delayed (for their time), locked (by their reconcile), failing (in backoff).",
)
CALLBACK_ERRORS = _family(
    "lean_sandbox_reconcile_callback_errors_total{controller}",
    "Callbacks of reconciles that raised an error; each is a bug.",
)
POOLS_STUCK = _family(
    "lean_sandbox_warmpool_not_progressing{namespace,warmpool_name,cause}",
    "1 for each pool that makes no progress: template, policy, create (members are refused), "
    "refused (their Pods are), unschedulable or failing (members end, or stay unready).",
)
SAFETY_NET = _family(
    "lean_sandbox_safety_net_total{controller}",
    "Reconciles by the safety net alone that wrote something; each is a bug, a lost wake-up.",
)
RECORDED = _family(
    "lean_sandbox_events_recorded_total{controller,outcome}",
    "Events of Kubernetes: posted, folded (into one before), patched (as a series), dropped (no"
    " room), failed, patch_failed, terminating (namespace).",
)
CLAIM_STAGES = _family(
    "lean_sandbox_claim_stage_seconds{stage}",
    "Seconds that steps of warm claims took: adopt (the patch that takes a member over), status"
    " (the patch that its client sees), pod_metadata (the patch between them, of its Pod).",
    _REQUEST_BUCKETS_S,
)
COMPANION_REPORTS = _family(
    "lean_sandbox_companion_reports_total{companion,reason}",
    "What companions did or could not do, by the reason of the Event that says so.",
)
ROLLOUT_LEFT = _family(
    "lean_sandbox_companion_rollout_old_members",
    "Free members of an older template in the pools that ask for a rolling update.",
)
LOG_DROPPED = _family(
    "lean_sandbox_log_lines_dropped_total", "Log lines that could not be written."
)
SERIES_DROPPED = _family(
    "lean_sandbox_metric_values_dropped_total",
    "Series dropped because their family had too many; the one counted longest ago goes first.",
)
ENDPOINT_BROKEN = _family(
    "lean_sandbox_endpoint_broken_total{listener,cause}",
    "Connections to the endpoints that broke: reset, timeout, tls, accept, crowded (closed to make"
    " room).",
)

# -- the process -----------------------------------------------------------------------------------

CPU_SECONDS = _family(
    "process_cpu_seconds_total", "User and system CPU time of the process, in seconds."
)
RESIDENT_BYTES = _family("process_resident_memory_bytes", "Resident memory of the process.")
VIRTUAL_BYTES = _family("process_virtual_memory_bytes", "Virtual memory of the process.")
START_TIME = _family(
    "process_start_time_seconds", "When the process started, in seconds since the epoch."
)
OPEN_FILES = _family("process_open_fds", "Open file descriptors.")
MOST_FILES = _family("process_max_fds", "File descriptors that may be open.")
