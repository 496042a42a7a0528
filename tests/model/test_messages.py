"""Texts operators and clients match on."""

from __future__ import annotations

import pytest

from lean_sandbox.controllers.sandbox.plans import refusal
from lean_sandbox.model.meta import controller_reference
from lean_sandbox.model.sandbox_status import FailedStep
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.children import ServiceEntry

LABELS = (
    'missing required pool authorization label ("agents.x-k8s.io/adoptable") or sandbox tracking '
    'label ("agents.x-k8s.io/sandbox-name-hash")'
)


@pytest.mark.case(64, 90, 102)
@pytest.mark.parametrize("what", ["PVC", "pod", "service"])
def test_a_child_of_somebody_else_is_named_with_its_owner(what: str) -> None:
    """Cases 64, 90, 102: a refused child says who owns it and who wanted it."""
    other = controller_reference("Deployment", "x", "u-1", "apps/v1")

    child = ServiceEntry(Key("ns", "c-1"), "u-2", 1, owner=other)
    assert refusal(what, child, "sb-1") == (
        f'{what} "c-1" is owned by Deployment/x (UID: u-1), not by sandbox "sb-1"'
    )


@pytest.mark.case(51, 94, 105)
@pytest.mark.parametrize("what", ["PVC", "pod", "service"])
def test_an_unauthorised_child_is_named_with_the_missing_labels(what: str) -> None:
    """Cases 51, 94, 105: a child that may not be adopted says which labels would allow it."""
    child = ServiceEntry(Key("ns", "c-1"), "u-2", 1)
    assert refusal(what, child, "sb-1") == f'cannot adopt unowned {what} "c-1": {LABELS}'


@pytest.mark.case(66, 114)
@pytest.mark.parametrize(
    ("step", "text"),
    [
        (FailedStep.PVC_GET, "failed to get PVC: boom"),
        (FailedStep.PVC_PATCH, "failed to patch PVC with owner reference: boom"),
        (FailedStep.POD_GET, "pod get failed: boom"),
        (FailedStep.POD_GET_AFTER_CREATE, "pod already exists but failed to fetch: boom"),
        (FailedStep.POD_DELETE, "failed to delete pod: boom"),
        (FailedStep.POD_PATCH, "failed to patch pod: boom"),
        (FailedStep.POD_NAME_CLEAR, "failed to clear pod name annotation: boom"),
        (FailedStep.SERVICE_GET, "service get failed: boom"),
        (FailedStep.SERVICE_UPDATE, "failed to update service with owner reference: boom"),
        (FailedStep.SERVICE_PATCH, "failed to patch owned service: boom"),
        (FailedStep.SERVICE_DELETE, "failed to delete service: boom"),
        (FailedStep.EXPIRY_POD_GET, "failed to get pod: boom"),
    ],
)
def test_a_failed_step_stands_before_the_error_of_the_api(step: FailedStep, text: str) -> None:
    """Cases 66, 114: what failed comes first, then the raw error."""
    assert f"{step}: boom" == text


def test_every_step_is_listed_above() -> None:
    """No step has a text without a test."""
    marks = test_a_failed_step_stands_before_the_error_of_the_api.pytestmark  # type: ignore[attr-defined]
    table = next(mark for mark in marks if mark.name == "parametrize").args[1]

    assert {step for step, _ in table} == set(FailedStep)
