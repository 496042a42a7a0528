"""Laws of the kubelet's small parts: addresses, Node objects, times."""

from __future__ import annotations

import ipaddress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.local.kubelet import kubelet
from lean_sandbox.local.kubelet.pods import age_s
from lean_sandbox.local.kubelet.scheduling import node_object
from tests.support.clock import EPOCH


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=60))
def test_no_two_pods_ever_share_an_address(plays: list[tuple[int, bool]]) -> None:
    """Whatever is taken and freed in which order, and however often they come round."""
    small = ipaddress.IPv4Network("10.64.0.0/28")
    held: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kubelet, "_POD_NETWORK", small)
        pool = kubelet._Addresses()
        for number, takes in plays:
            uid = f"u{number}"
            if takes:
                address = pool.take(uid)
                assert held.setdefault(uid, address) == address
            else:
                pool.free(uid)
                held.pop(uid, None)
            assert len(held) == len(set(held.values()))


def test_addresses_found_in_use_are_not_given_again() -> None:
    """A kubelet that starts anew learns them from the Pods."""
    pool = kubelet._Addresses()
    pool.note("old", "10.64.0.1")
    assert pool.take("new") == "10.64.0.2"
    assert pool.take("old") == "10.64.0.1"


def test_every_address_lies_in_its_range() -> None:
    """And is never the network's own."""
    first = kubelet._Addresses().take("u")
    assert ipaddress.ip_address(first) in ipaddress.ip_network("10.64.0.0/10")
    assert not first.endswith(".0.0.0")


def test_a_simulated_node_is_ready_and_named() -> None:
    """Ready, with room for Pods, labelled with its host name."""
    node = node_object("node-1", EPOCH)
    (ready,) = (c for c in node["status"]["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "True"
    assert node["status"]["allocatable"]["pods"] == "5000"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "node-1"


def test_the_age_of_a_timestamp_of_this_second_is_zero() -> None:
    """API timestamps have whole seconds; a delay counted from one is not shortened by the rest."""
    stamp = "2026-01-02T03:04:05Z"
    assert age_s(stamp, EPOCH + timedelta(seconds=0.9)) == 0
    assert age_s(stamp, EPOCH + timedelta(seconds=2.5)) == 2
    assert age_s(stamp, EPOCH - timedelta(seconds=9)) == 0
    assert age_s("soon", EPOCH) == 0
    assert age_s(None, EPOCH) == 0
