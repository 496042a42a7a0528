"""The Service of a Sandbox, as tests make it and read it."""

from __future__ import annotations

from typing import Any

from tests.support.world import NS, World, sandbox

Json = dict[str, Any]

ADOPTABLE = {"agents.x-k8s.io/adoptable": "true"}
FQDN = "sb-1.ns.svc.cluster.local"


def with_ports(*ports: Json, service: bool | None = True, **pod_spec: Any) -> Json:
    """Return a Sandbox whose one container has these ports."""
    container = {"name": "main", "image": "busybox", "ports": list(ports)}
    spec = {} if service is None else {"service": service}
    return sandbox(spec=spec, pod_spec={"containers": [container], **pod_spec})


def service_body(
    *,
    labels: dict[str, str] | None = None,
    owners: tuple[Json, ...] = (),
    **spec: Any,
) -> Json:
    """Return a Service of the Sandbox's name that somebody else made; headless unless told."""
    metadata: Json = {"name": "sb-1", "namespace": NS}
    if labels:
        metadata["labels"] = labels
    if owners:
        metadata["ownerReferences"] = list(owners)
    body = {"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"port": 9090}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": body}


def service_of(world: World) -> Json:
    """Return the Service, which must be there."""
    found = world.find("services")
    assert found is not None
    return found


def ports_of(world: World) -> list[tuple[str, str, int, int]]:
    """Return the ports of the Service as name, protocol, port and target."""
    ports = service_of(world)["spec"].get("ports") or []
    return [(one["name"], one["protocol"], one["port"], one["targetPort"]) for one in ports]


def reported(world: World) -> tuple[str, str] | None:
    """Return the status' service and its name, None when neither is there."""
    status = world.get()["status"]
    if "service" not in status and "serviceFQDN" not in status:
        return None
    return status["service"], status["serviceFQDN"]


async def want(world: World, *, service: bool | None) -> None:
    """Set ``spec.service``; None takes it out."""
    await world.patch("sandboxes", "sb-1", {"spec": {"service": service}})
