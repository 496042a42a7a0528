"""The headless Service of a Sandbox: its ports, creation, repair and adoption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta, changed_keys, child_metadata
from lean_sandbox.model.podspec import PodSpecShape
from lean_sandbox.model.wire import Lenient, OrNull

DEFAULT_PROTOCOL = "TCP"
HEADLESS = "None"


class ServicePort(msgspec.Struct, frozen=True, gc=False):
    """The four fields of a Service port that count; all of them are always written."""

    name: str = ""
    protocol: str = DEFAULT_PROTOCOL
    port: int = 0
    targetPort: int | str | None = None


class ServiceSpec(Lenient, frozen=True):
    """The part of a Service's spec that is compared."""

    clusterIP: OrNull[str] = ""
    selector: dict[str, str] | None = None
    ports: OrNull[tuple[ServicePort, ...]] = ()


class Service(Lenient, frozen=True):
    """A Service, pruned while decoding."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[ServiceSpec] = ServiceSpec()


def derive_ports(spec: PodSpecShape) -> tuple[ServicePort, ...]:
    """Return the Service ports for the container ports of a Pod spec, sorted by port and protocol.

    Containers count in order, then init containers that restart always. An explicit name is kept
    for the first port that claims it; nameless ports are called ``p-<port>-<protocol>``, with
    ``-2``, ``-3``... appended if that name is taken.
    """
    chosen: dict[tuple[int, str], str] = {}
    taken: set[str] = set()
    for key, name in _container_ports(spec):
        known = chosen.setdefault(key, "")
        if not known and name and name not in taken:
            chosen[key] = name
            taken.add(name)
    return tuple(
        ServicePort(name or _free_name(key, taken), key[1], key[0], key[0])
        for key, name in sorted(chosen.items())
    )


def build_service(sandbox_meta: ObjectMeta, ports: tuple[ServicePort, ...]) -> dict[str, Any]:
    """Return the body that creates the headless Service of a Sandbox."""
    metadata = child_metadata(sandbox_meta, sandbox_meta.name)
    spec: dict[str, Any] = {"clusterIP": HEADLESS, "selector": dict(metadata["labels"])}
    if ports:
        spec["ports"] = ports
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def owned_service_patch(
    labels: Mapping[str, str] | None,
    held: ServiceSpec,
    tracking_hash: str,
    ports: tuple[ServicePort, ...] | None,
) -> dict[str, Any] | None:
    """Return the merge patch that repairs an owned Service, or None when nothing drifted.

    The ports stay where ``ports`` is None.
    """
    tracking = {names.NAME_HASH_LABEL: tracking_hash}
    patch: dict[str, Any] = {}
    if (labels or {}).get(names.NAME_HASH_LABEL) != tracking_hash:
        patch["metadata"] = {"labels": tracking}
    spec: dict[str, Any] = {}
    if selector := changed_keys(held.selector, tracking):
        spec["selector"] = selector
    if ports is not None and ports != held.ports:
        spec["ports"] = ports or None
    if spec:
        patch["spec"] = spec
    return patch or None


def cluster_ip_refusal(name: str, spec: ServiceSpec) -> str | None:
    """Return why the Service ``name`` can never be a headless one, None when it can."""
    if spec.clusterIP in ("", HEADLESS):
        return None
    return (
        f'cannot adopt service "{name}": ClusterIP is "{spec.clusterIP}" '
        '(expected "None", field is immutable)'
    )


def _container_ports(spec: PodSpecShape) -> Iterator[tuple[tuple[int, str], str | None]]:
    """Yield number, protocol and name of each port."""
    init = (c for c in spec.initContainers or () if c.restartPolicy == "Always")
    for container in (*(spec.containers or ()), *init):
        for port in container.ports or ():
            if number := port.containerPort:
                yield (number, port.protocol or DEFAULT_PROTOCOL), port.name


def _free_name(key: tuple[int, str], taken: set[str]) -> str:
    base = f"p-{key[0]}-{key[1].lower()}"
    free = (f"{base}-{n}" for n in count(2) if f"{base}-{n}" not in taken)
    name = next(free) if base in taken else base
    taken.add(name)
    return name
