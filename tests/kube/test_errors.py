# ruff: noqa: E501 -- answers of a server are kept as they are.
"""The error tree: what a Status body becomes, and what may be repeated."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lean_sandbox.kube import errors
from tests.support import refusals

# Bodies as kube-apiserver sends them.
NOT_FOUND = b"""{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
"message":"pods \\"web\\" not found","reason":"NotFound","details":{"name":"web","kind":"pods"},"code":404}"""
EXISTS = b"""{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
"message":"pods \\"web\\" already exists","reason":"AlreadyExists",
"details":{"name":"web","kind":"pods"},"code":409}"""
CONFLICT = b"""{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
"message":"Operation cannot be fulfilled on sandboxes.agents.x-k8s.io \\"a\\": the object has been modified",
"reason":"Conflict","details":{"name":"a","group":"agents.x-k8s.io","kind":"sandboxes"},"code":409}"""
INVALID = b"""{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
"message":"Pod \\"web\\" is invalid: spec.containers: Required value","reason":"Invalid",
"details":{"name":"web","kind":"Pod","causes":[
{"reason":"FieldValueRequired","message":"Required value","field":"spec.containers"},
{"reason":"FieldValueInvalid","message":"Invalid value: 70000","field":"spec.containers[0].ports"}]},
"code":422}"""
TERMINATING = b"""{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
"message":"pods \\"web\\" is forbidden: unable to create new content in namespace a because it is being terminated",
"reason":"Forbidden","details":{"name":"web","kind":"pods","causes":[
{"reason":"NamespaceTerminating","message":"namespace a is being terminated","field":"metadata.namespace"}]},
"code":403}"""
RBAC = b"""{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
"message":"pods is forbidden: User \\"u\\" cannot create resource \\"pods\\" in API group \\"\\" in the namespace \\"a\\"",
"reason":"Forbidden","details":{"kind":"pods"},"code":403}"""
BUSY = b"""{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
"message":"too many requests, please try again later.","reason":"TooManyRequests",
"details":{"retryAfterSeconds":3},"code":429}"""
DENIED = msgspec.json.encode(refusals.denied_by_webhook(0, ""))

ASKED = errors.Asked("create", "pods", "a")


def made(status: int, body: bytes, headers: dict[bytes, bytes] | None = None) -> errors.ApiError:
    """Build the error of an answer to a create of Pods in namespace a."""
    return errors.from_response(status, body, headers or {}, ASKED)


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (400, b"", errors.ApiError, True),
        (401, b"Unauthorized", errors.Unauthorized, True),
        (403, RBAC, errors.Forbidden, True),
        (403, TERMINATING, errors.Forbidden, False),
        (404, NOT_FOUND, errors.NotFound, True),
        (404, b"404 page not found\n", errors.NotServed, True),
        (404, b'{"message":"no route"}', errors.NotServed, True),
        (405, b"", errors.ApiError, True),
        (406, b"", errors.NotAcceptable, True),
        (409, CONFLICT, errors.Conflict, True),
        (409, EXISTS, errors.AlreadyExists, True),
        (410, b"", errors.Gone, True),
        (413, b"", errors.ApiError, True),
        (415, b"", errors.ApiError, True),
        (422, INVALID, errors.Invalid, True),
        (429, BUSY, errors.TooManyRequests, True),
        (429, DENIED, errors.TooManyRequests, True),
        (500, b"", errors.ServerFault, True),
        (500, DENIED, errors.ServerFault, True),
        (503, b"<html>", errors.ServerFault, True),
        (599, b"", errors.ServerFault, True),
        (302, b"", errors.ApiError, True),
        (418, b"", errors.ApiError, True),
    ],
)
def test_each_status_has_its_class(
    status: int, body: bytes, kind: type[errors.ApiError], *, retryable: bool
) -> None:
    """The HTTP code and the reason decide the class and whether repeating can help."""
    error = made(status, body)
    assert type(error) is kind
    assert error.retryable is retryable
    assert (error.status, error.asked) == (status, ASKED)


def test_the_servers_words_are_kept() -> None:
    """Reason, message and the reasons of the causes survive."""
    error = made(422, INVALID)
    assert error.reason == "Invalid"
    assert "spec.containers: Required value" in error.message
    assert error.has_cause("FieldValueRequired")
    assert error.has_cause("FieldValueInvalid")


@pytest.mark.parametrize(
    ("refusal", "is_final"),
    [
        (refusals.BY_SCHEMA, True),
        (refusals.BY_POLICY, False),
        (refusals.BY_WEBHOOK, False),
        (refusals.INVALID_BY_WEBHOOK, False),
        (refusals.TEST_FAILED, False),
        (
            {**refusals.BY_SCHEMA, "details": {"causes": [{"field": "spec"}, {"reason": "x"}]}},
            False,
        ),
        ({}, False),
    ],
)
def test_of_all_422_only_a_schema_refusal_is_final(
    refusal: dict[str, object], *, is_final: bool
) -> None:
    """Every cause names a field, and no webhook says so."""
    assert made(422, msgspec.json.encode(refusal)).is_schema_refusal is is_final


@example(code=403, reason="", verb="create", denial=refusals.denied_by_policy)
@example(code=404, reason="", verb="create", denial=refusals.denied_by_webhook)
@given(
    code=st.integers(400, 499).filter(lambda code: code != 429),
    reason=st.sampled_from(["", "NotFound", "AlreadyExists", "Conflict", "Expired"]),
    verb=st.sampled_from(["create", "patch", "delete"]),
    denial=st.sampled_from([refusals.denied_by_webhook, refusals.denied_by_policy]),
)
def test_a_denial_by_admission_is_a_refusal_whatever_code_it_has(
    code: int, reason: str, verb: str, denial: Callable[[int, str], dict[str, object]]
) -> None:
    """It tells nothing of the object, of its namespace or of our credential."""
    causes = [{"reason": "NamespaceTerminating", "field": "metadata.uid"}]
    details = {"kind": "namespaces", "causes": causes}
    body = {**denial(code, reason), "details": details}
    error = errors.from_response(code, msgspec.json.encode(body), {}, errors.Asked(verb, "pods"))
    assert type(error) is errors.Forbidden
    assert error.is_refusal
    assert error.retryable
    assert not error.namespace_terminating
    assert not error.is_schema_refusal
    assert not error.is_of_another
    assert "permission" not in str(error)


def test_refusals_say_what_was_asked_and_the_way_out() -> None:
    """Verb, resource, namespace and what to change are in the sentence itself."""
    text = str(made(403, RBAC))
    assert "allow verb 'create' on resource 'pods' in namespace 'a'" in text
    everywhere = errors.from_response(403, RBAC, {}, errors.Asked("list", "pods"))
    assert str(everywhere).startswith("list pods: 403 Forbidden: pods is forbidden: ")
    assert "in the whole cluster" in str(everywhere)
    one = errors.Asked("patch", "pods/status", "a", "web")
    text = str(errors.from_response(409, CONFLICT, {}, one))
    assert text.startswith("patch pods/status 'web' in namespace 'a': 409 Conflict: Operation ")
    text = str(made(401, b""))
    assert "create pods in namespace 'a'" in text
    assert "check that the token" in text


@pytest.mark.parametrize(
    "why",
    [
        "exceeded quota: tenant, requested: pods=1, used: pods=9, limited: pods=9",
        'violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)',
        "maximum cpu usage per Container is 1, but limit is 2",
        "no PriorityClass with name high was found",
    ],
)
def test_a_refusal_for_what_is_asked_does_not_send_anybody_to_the_roles(why: str) -> None:
    """A quota and an admission plugin answer 403 as well: more rights would not help."""
    message = f'pods "web" is forbidden: {why}'
    body = msgspec.json.encode(
        {"kind": "Status", "apiVersion": "v1", "reason": "Forbidden", "message": message}
    )
    text = str(made(403, body))
    assert text.endswith(message)
    assert "Role" not in text


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({b"retry-after": b"7"}, BUSY, 7.0),
        ({}, BUSY, 3.0),
        ({}, BUSY.replace(b"3", b"3" * 400), 3600.0),
        ({b"retry-after": b"Wed, 21 Oct 2026 07:28:00 GMT"}, b"", None),
        ({b"retry-after": b"-1"}, b"", None),
        ({b"retry-after": b"\xb2"}, b"", None),
        ({}, b"", None),
    ],
)
def test_retry_after_is_read_from_header_or_body(
    headers: dict[bytes, bytes], body: bytes, expected: float | None
) -> None:
    """Whole seconds in the header win over the Status; other forms are ignored."""
    assert made(429, body, headers).retry_after_s == expected


@given(st.integers(300, 599), st.binary(max_size=400))
def test_any_body_makes_an_error(status: int, body: bytes) -> None:
    """Proxies send anything; the code alone is enough, and the text stays one short line."""
    error = made(status, body)
    assert error.status == status
    assert "\n" not in error.message


def test_a_status_inside_a_stream_has_the_class_of_its_code() -> None:
    """Watch errors come with 200 and a Status: its code decides, 500 when it has none."""
    gone = errors.from_status(b'{"kind":"Status","code":410,"reason":"Expired"}')
    assert isinstance(gone, errors.Gone)
    assert isinstance(errors.from_status(b"{}"), errors.ServerFault)


def test_transport_errors_are_retryable() -> None:
    """No answer may be one the next time, and one that does not fit may be of a proxy."""
    assert errors.ConnectFailed.retryable
    assert errors.RequestTimeout.retryable
    assert errors.ProtocolFault.retryable
    assert errors.CredentialFault.retryable
    assert errors.DecodeFault.retryable


def answer(status: int, verb: str = "create", **details: object) -> errors.ApiError:
    """Return the error of an answer with these details, to a verb."""
    body = {"kind": "Status", "reason": details.pop("reason", ""), "details": details}
    return errors.from_response(
        status, msgspec.json.encode(body), {}, errors.Asked(verb, "pods", "a")
    )


CAUSES = {
    "namespace": {"reason": "NamespaceTerminating", "field": "metadata.namespace"},
    "uid": {"reason": "FieldValueInvalid", "field": "metadata.uid"},
    "other": {"reason": "FieldValueInvalid", "field": "spec"},
}


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422, 500])
@pytest.mark.parametrize("causes", [(), ("namespace",), ("uid",), ("other",), ("other", "uid")])
@pytest.mark.parametrize("kind", ["namespaces", "pods"])
@pytest.mark.parametrize("verb", ["create", "patch"])
def test_what_a_refusal_means_follows_from_code_causes_and_verb(
    status: int, causes: tuple[str, ...], kind: str, verb: str
) -> None:
    """No sign alone says that a namespace ends, or that the object is another one."""
    error = answer(status, verb, kind=kind, causes=[CAUSES[name] for name in causes])
    is_missing = status == 404 and verb == "create" and kind == "namespaces"
    is_ending = status == 403 and "namespace" in causes
    assert error.namespace_terminating is (is_missing or is_ending)
    assert error.is_of_another is (status == 422 and "uid" in causes)
    assert error.is_refusal is (status in (400, 403, 422, 500) and not is_ending)
    assert error.is_schema_refusal is (status == 422 and bool(causes))
    assert error.retryable is not error.namespace_terminating


@pytest.mark.parametrize("status", [404, 409, 422])
@pytest.mark.parametrize("reason", ["", "AlreadyExists", "NotFound", "Conflict"])
def test_the_reason_tells_apart_errors_of_one_code_alone(status: int, reason: str) -> None:
    """Of another code it changes nothing."""
    by_code = {404: errors.NotServed, 409: errors.Conflict, 422: errors.Invalid}
    told_apart = {
        (404, "NotFound"): errors.NotFound,
        (409, "AlreadyExists"): errors.AlreadyExists,
    }
    wanted = told_apart.get((status, reason), by_code[status])
    assert type(answer(status, reason=reason)) is wanted


@pytest.mark.parametrize(
    "body",
    [{"kind": "Status"}, {"reason": "Why"}, {"message": "why"}],
)
def test_a_body_with_any_word_of_a_status_is_one(body: dict[str, str]) -> None:
    """Any other is text, of which 256 bytes are kept."""
    error = made(500, msgspec.json.encode(body))
    assert (error.reason, error.message) == (body.get("reason", ""), body.get("message", ""))
    assert made(500, b'{"kind": "Pod"}').message == '{"kind": "Pod"}'
    assert made(500, b"x" * 257).message == "x" * 256
