"""Refusals as kube-apiserver 1.36 sends them: answers for ``fail_next``, by who refuses.

``tests/controlplane/test_refusals.py`` asks a real server for the same ones.
"""

from __future__ import annotations

from typing import Any

from tests.support.world import World

__all__ = [
    "BY_POLICY",
    "BY_SCHEMA",
    "BY_WEBHOOK",
    "INVALID_BY_WEBHOOK",
    "TEST_FAILED",
    "denied_by_policy",
    "denied_by_webhook",
    "deny",
]

Json = dict[str, Any]

_ALWAYS = 10**6


def _refusal(message: str, details: Json | None, reason: str = "Invalid") -> Json:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    said = {"message": message, "details": details, "reason": reason, "code": 422}
    return {**status, **{key: value for key, value in said.items() if value is not None}}


_DENIED = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not now"
_BROKEN = "Invalid value: 70000: must be between 1 and 65535, inclusive"
_PORT = "spec.containers[0].ports[0].containerPort"
_CAUSE = {"reason": "FieldValueInvalid", "message": _BROKEN, "field": _PORT}
_INVALID = f'Pod "sb-1" is invalid: {_PORT}: {_BROKEN}'
_HOOK = 'admission webhook "w.example.com" denied the request: '

#: An object that breaks a rule of its kind.
BY_SCHEMA = _refusal(_INVALID, {"name": "sb-1", "kind": "Pod", "causes": [_CAUSE]})
#: A ValidatingAdmissionPolicy whose validation gives no reason, or the reason Invalid.
BY_POLICY = _refusal(
    f'pods "sb-1" is forbidden: {_DENIED}',
    {"name": "sb-1", "kind": "pods", "causes": [{"message": _DENIED}]},
)
#: A webhook that gives the code 422 and a sentence.
BY_WEBHOOK = _refusal(f"{_HOOK}not now", None, reason="")
#: A webhook that answers as the server itself does for an object that breaks a rule.
INVALID_BY_WEBHOOK = {**BY_SCHEMA, "message": f"{_HOOK}{_INVALID}"}
#: A JSON patch of which a test does not hold.
TEST_FAILED = _refusal("the server rejected our request due to an error in our request", {})


def denied_by_webhook(code: int, reason: str = "") -> Json:
    """Return the denial of a webhook that gives a code and perhaps a reason."""
    return {**BY_WEBHOOK, "code": code, "reason": reason}


def denied_by_policy(code: int, reason: str) -> Json:
    """Return the denial of a ValidatingAdmissionPolicy whose validation gives a reason."""
    return {**BY_POLICY, "code": code, "reason": reason}


def deny(world: World, asked: str, denial: Json, *, times: int = _ALWAYS) -> None:
    """Have requests of this kind, such as ``create pods``, denied until the faults are cleared."""
    verb, resource = asked.split()
    world.plane.fail_next(verb, resource, denial["code"], times=times, body=denial)
