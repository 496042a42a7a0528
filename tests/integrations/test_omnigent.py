"""Omnigent: its launchers, of Sandboxes and of members of a pool, as its server uses them."""

from __future__ import annotations

from pathlib import Path

from tests.client.cluster import Room
from tests.integrations.environments import environment
from tests.integrations.program import run

STEPS = str(Path(__file__).with_name("omnigent_steps.py"))


def test_hosts_start_sleep_wake_and_end(room: Room) -> None:
    """In a Sandbox of their own and in a pool's, one and ten at once; their volumes stay."""
    account = {"name": "omnigent-runner", "namespace": room.name}
    room.cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    installed = environment("omnigent", at_least=(3, 12))
    run(installed, STEPS, room.cluster.kubeconfig, room.name)
