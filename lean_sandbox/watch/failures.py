"""For reflectors after a failure: how long to pause, and why a kind may not be served."""

from __future__ import annotations

import math

from lean_sandbox.kube.resources import Resource

_APPLY = "lean-sandbox crds | kubectl apply --server-side -f -"
_BASE_S = 0.8
_CAP_S = 30.0


def pause_s(
    failures: int, jitter: float, *, at_least_s: float = 0.0, at_most_s: float = math.inf
) -> float:
    """Return how long to wait after so many failures in a row: 0.8 s, doubling to 30 s.

    ``jitter``, from 0 to 1, spreads the reconnects of many clients after a server restart.
    ``at_least_s`` is what the server asked for (Retry-After).
    """
    whole_s = min(_CAP_S, at_most_s, _BASE_S * 2.0 ** min(failures - 1, 16))
    return max(whole_s * (0.5 + jitter * 0.5), at_least_s)


def why_unserved(resource: Resource) -> str:
    """Return why a list or watch of a resource gets 404, and the remedy; "" for built-in kinds.

    A namespace that does not exist has an empty list: 404 means that the kind is not served.
    """
    if not resource.group.endswith("agents.x-k8s.io"):
        return ""
    return (
        f"the CustomResourceDefinition {resource.qualified} is missing, or serves other versions"
        f" than {resource.version}, the only one this controller speaks: apply it with `{_APPLY}`;"
        " the controller waits for it. If the server refuses it because of status.storedVersions,"
        " migrate the stored objects with v0.5 of the reference first"
    )
