"""What a server with the definitions makes of a template, with no controller beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.errors import StatusError
from tests.support.builders import placed
from tests.support.clock import FakeClock

Json = dict[str, Any]


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """Return a server alone."""
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
        plane.store.create(namespace)
        yield plane


@pytest.mark.template_case(50)
async def test_what_is_not_said_is_stored_as_its_default(plane: ControlPlane) -> None:
    """Template case 50: Managed, and no injection of any kind."""
    made = plane.store.create(placed())
    assert made["spec"]["networkPolicyManagement"] == "Managed"
    assert made["spec"]["envVarsInjectionPolicy"] == "Disallowed"
    assert made["spec"]["volumeClaimTemplatesPolicy"] == "Disallowed"


@pytest.mark.template_case(51)
@pytest.mark.parametrize(
    "spec",
    [
        {"networkPolicyManagement": "Maybe"},
        {"envVarsInjectionPolicy": "Sometimes"},
        {"volumeClaimTemplatesPolicy": "Never"},
        {"podTemplate": None},
        {"podTemplate": {"spec": {}}},
    ],
)
async def test_a_template_that_makes_no_sense_is_rejected(plane: ControlPlane, spec: Json) -> None:
    """Template case 51: 422 for unknown words and missing parts."""
    body = placed()
    body["spec"].update(spec)
    with pytest.raises(StatusError) as refused:
        plane.store.create(body)
    assert refused.value.code == 422


@pytest.mark.template_case(52)
async def test_a_status_is_pruned(plane: ControlPlane) -> None:
    """Template case 52: the kind has none."""
    made = plane.store.create({**placed(), "status": {"phase": "Good"}})
    assert "status" not in made
