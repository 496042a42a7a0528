"""Updates are answered as by Kubernetes 1.36: same acceptance, same causes, same texts.

Of creations the same is asked over the wire (``tests/conformance/test_answers.py``).
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lean_sandbox.local.errors import invalid
from lean_sandbox.local.kinds import builtin_kinds
from lean_sandbox.local.schema.core import core_validate
from lean_sandbox.local.schema.decoding import builtin_schema, complete, decode, decode_metadata
from lean_sandbox.local.schema.defaults import core_defaults
from lean_sandbox.local.schema.metadata import validate_metadata
from lean_sandbox.local.schema.structural import apply_defaults, prune
from lean_sandbox.local.schema.validation import validate
from tests.local.schema.answers import cases, causes
from tests.model.crds.definitions import definitions

Json = dict[str, Any]
KINDS = {kind.kind: kind for kind in builtin_kinds()}
SCHEMAS: dict[str, Json] = {
    crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for crd in definitions().values()
}


def _assert_refused(status: Json, answer: Json) -> None:
    assert status["code"] == answer["code"]
    if answer["code"] != 422:
        assert status["message"] == answer["message"]
        return
    assert causes(status["details"]["causes"]) == causes(answer["causes"])
    if len(answer["causes"]) == 1:
        assert status["message"] == answer["message"]


def _answer_custom(obj: Json, old: Json | None = None, *, is_status: bool = False) -> Json | None:
    kind = obj["kind"]
    group = obj["apiVersion"].partition("/")[0]
    schema = SCHEMAS[kind]
    decode_metadata(obj)
    prune(obj, schema)
    apply_defaults(obj, schema)
    found = validate_metadata(obj, old)
    found += validate(obj, schema, old=old, before=found, is_status=is_status)
    name = obj["metadata"].get("name", "")
    return invalid(group, kind, name, found).status() if found else None


def _answer_builtin(obj: Json, old: Json) -> Json | None:
    kind = obj["kind"]
    for part in (obj, old):
        decode(part, builtin_schema(kind), kind)
        core_defaults(kind, part)
        complete(part, builtin_schema(kind))
    found = core_validate(KINDS[kind], obj, old)
    name = obj["metadata"].get("name", "")
    return invalid("", kind, name, found).status() if found else None


@pytest.mark.parametrize("case", cases("updates"))
def test_an_update_of_a_sandbox_is_answered_as_recorded(case: Json) -> None:
    """Updates of spec and status: transition rules, limits of conditions."""
    status = _answer_custom(copy.deepcopy(case["object"]), case["old"], is_status=case["is_status"])
    if case["answer"].get("accepted"):
        assert status is None
    else:
        assert status is not None
        _assert_refused(status, case["answer"])


@pytest.mark.parametrize("case", cases("pod_updates"))
def test_an_update_of_a_pod_is_answered_as_recorded(case: Json) -> None:
    """Most of a Pod's spec is fixed; images, deadlines, new tolerations and labels are not."""
    status = _answer_builtin(copy.deepcopy(case["object"]), case["old"])
    if case["answer"].get("accepted"):
        assert status is None
    else:
        assert status is not None
        _assert_refused(status, case["answer"])
