"""Ports and Services."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.model.podspec import shape_of
from lean_sandbox.model.service import (
    ServicePort,
    ServiceSpec,
    build_service,
    cluster_ip_refusal,
    derive_ports,
    owned_service_patch,
)
from tests.model.support import HASH, HASH_KEY, REFERENCE, as_json, sandbox_meta

Port = tuple[str, int, str]
SELECTOR = {HASH_KEY: HASH}
HTTP = ServicePort("http", "TCP", 8080, 8080)


def container(*ports: Port) -> dict[str, Any]:
    """Return a container with ports of (name, number, protocol); empty parts are left out."""
    bodies = [
        {"name": name, "containerPort": number, "protocol": protocol, "hostPort": 1}
        for name, number, protocol in ports
    ]
    return {"name": "c", "ports": [{k: v for k, v in b.items() if v} for b in bodies]}


def ports_of(*containers: dict[str, Any]) -> list[Port]:
    """Return the derived ports of a Pod spec as (name, number, protocol)."""
    spec = msgspec.json.encode({"containers": containers})
    derived = derive_ports(shape_of(msgspec.Raw(spec)))
    assert all(port.port == port.targetPort for port in derived)
    return [(port.name, port.port, port.protocol) for port in derived]


@pytest.mark.case(96)
def test_a_taken_name_is_not_given_twice() -> None:
    """Case 96: the first port of a name keeps it; the second one is named by its number."""
    assert ports_of(container(("http", 9090, "")), container(("http", 8080, ""))) == [
        ("p-8080-tcp", 8080, "TCP"),
        ("http", 9090, "TCP"),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b"{}",
        b'{"containers": null, "initContainers": null}',
        b'{"containers": [{"ports": null}]}',
        b'{"containers": [{"ports": [{"name": null, "containerPort": null, "protocol": null}]}]}',
    ],
)
def test_nothing_to_derive_is_no_error(raw: bytes) -> None:
    """Null and absent parts of a Pod spec have no ports."""
    assert derive_ports(shape_of(msgspec.Raw(raw))) == ()


PORTS = st.tuples(
    st.sampled_from(["", "a", "b", "p-1-tcp", "p-1-tcp-2", "p-2-udp"]),
    st.integers(min_value=0, max_value=3),
    st.sampled_from(["", "TCP", "UDP", "SCTP"]),
)


@given(st.lists(st.lists(PORTS, max_size=6), max_size=3))
def test_derived_ports_are_unique_and_sorted(containers: list[list[Port]]) -> None:
    """Whatever the template says, names and keys are unique, sorted, complete, and never empty."""
    derived = ports_of(*(container(*ports) for ports in containers))

    wanted = {(number, protocol or "TCP") for ports in containers for _, number, protocol in ports}
    keys = [(number, protocol) for _, number, protocol in derived]
    names = [name for name, _, _ in derived]
    assert keys == sorted(key for key in wanted if key[0])
    assert len(set(names)) == len(names)
    assert all(names)


@pytest.mark.case(15)
def test_the_service_is_headless_and_tracked() -> None:
    """Case 15: name, label, selector, headless address, reference, and nothing else."""
    assert as_json(build_service(sandbox_meta(), (HTTP,))) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "sb-1",
            "namespace": "ns",
            "labels": SELECTOR,
            "ownerReferences": [REFERENCE],
        },
        "spec": {
            "clusterIP": "None",
            "selector": SELECTOR,
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080, "targetPort": 8080}],
        },
    }


def repair(held: tuple[ServicePort, ...], ports: tuple[ServicePort, ...]) -> Any:
    """Return the patch that an owned Service with these ports needs, as the server reads it."""
    spec = ServiceSpec("None", SELECTOR, held)
    return as_json(owned_service_patch(SELECTOR, spec, HASH, ports))


def test_ports_nobody_wants_are_cleared() -> None:
    """When the template has no ports left, the Service's are removed."""
    assert repair((HTTP,), ()) == {"spec": {"ports": None}}


@pytest.mark.parametrize(
    "port",
    [
        ServicePort("https", "TCP", 8080, 8080),
        ServicePort("http", "UDP", 8080, 8080),
        ServicePort("http", "TCP", 8081, 8080),
        ServicePort("http", "TCP", 8080, "http"),
    ],
)
def test_each_compared_port_field_is_a_drift(port: ServicePort) -> None:
    """Name, protocol, number and target are compared, position by position."""
    assert repair((port,), (HTTP,)) is not None
    assert repair((port, HTTP), (HTTP, port)) is not None


@pytest.mark.case(93)
def test_a_service_with_an_address_is_not_adopted() -> None:
    """Case 93: a real cluster IP cannot be changed, so such a Service is refused."""
    assert cluster_ip_refusal("sb-1", ServiceSpec("10.96.0.100")) == (
        'cannot adopt service "sb-1": ClusterIP is "10.96.0.100" '
        '(expected "None", field is immutable)'
    )
    assert cluster_ip_refusal("sb-1", ServiceSpec("None")) is None
    assert cluster_ip_refusal("sb-1", ServiceSpec("")) is None
