"""Liveness and readiness, asked and answered as the reference's framework does (spec, 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from lean_sandbox.http.server import Answer, Handler, Request, not_found, text

# Returns what is wrong, in words; ``None`` while all is well.
Check: TypeAlias = Callable[[], str | None]


def health(checks: Mapping[str, Check]) -> Handler:
    """Return a handler that serves each check at ``/NAME`` and ``/NAME/NAME``.

    200 ``ok``, or 500 with what is wrong. ``?verbose`` lists the check, ``?exclude=NAME`` leaves it
    out.
    """

    async def handle(request: Request) -> Answer:
        name, slash, sub = request.path.removeprefix("/").partition("/")
        check = checks.get(name)
        if check is None or sub not in ("", name):
            return not_found(request)
        if slash and sub:
            problem = check()
            if problem is None:
                return text(200, "ok")
            return text(500, f"internal server error: {problem}\n")
        return _whole(name, check, request)

    return handle


def _whole(name: str, check: Check, request: Request) -> Answer:
    excluded = request.query.get("exclude")
    lines: list[str] = []
    problem: str | None = None
    if excluded == name:
        lines.append(f"[+]{name} excluded: ok")
    else:
        problem = check()
        lines.append(f"[+]{name} ok" if problem is None else f"[-]{name} failed: {problem}")
        if excluded is not None:
            lines.append(
                f"warn: some health checks cannot be excluded: no matches for {excluded!r}"
            )
    if problem is not None:
        return text(500, "\n".join((*lines, f"{name} check failed", "")))
    if "verbose" not in request.query:
        return text(200, "ok")
    return text(200, "\n".join((*lines, f"{name} check passed", "")))
