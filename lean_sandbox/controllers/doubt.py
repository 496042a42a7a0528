"""What is remembered of an object once a write to it has ended without a clear answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lean_sandbox.kube.errors import ApiError

_SERVER_FAULT = 500


@contextmanager
def doubting(forget: Callable[[], None]) -> Iterator[None]:
    """Call ``forget`` when the body raises anything but a refusal by the server.

    A write that timed out, broke off or met a server error may have been carried out all the same.
    Compared with what was remembered before, a later write could look as if it had nothing to do.
    """
    try:
        yield
    except ApiError as error:
        if error.status >= _SERVER_FAULT:
            forget()
        raise
    except BaseException:
        forget()
        raise
