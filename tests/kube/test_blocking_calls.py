"""What blocks runs in threads, for which neither requests nor the end of the process wait."""

from __future__ import annotations

import socket
import threading
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from lean_sandbox.kube.auth import ExecAuth, ExecSettings
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ConnectFailed, CredentialFault, RequestTimeout
from lean_sandbox.kube.transport import Transport
from tests.support.clock import FakeClock


def test_a_resolver_that_never_answers_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request fails at its deadline, and the process ends without the answer."""
    resolve = socket.getaddrinfo

    def unless_a_name(host: str | bytes, *rest: Any, **options: Any) -> Any:
        if not isinstance(host, bytes):
            threading.Event().wait()
        return resolve(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", unless_a_name)

    async def ask() -> None:
        async with aclosing(Transport(Connection("http://api.example:6443"))) as transport:
            with pytest.raises(RequestTimeout):
                await transport.request("GET", "/", timeout_s=0.05)

    before = set(threading.enumerate())
    anyio.run(ask)
    assert all(one.daemon for one in set(threading.enumerate()) - before)


async def test_a_system_without_threads_left_is_a_failure_like_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a container may have no more processes: told as an error that is retried."""

    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    async with aclosing(Transport(Connection("http://api.example:6443"))) as transport:
        with pytest.raises(ConnectFailed, match="can't start new thread"):
            await transport.request("GET", "/")
    plugin = ExecAuth(ExecSettings("client.authentication.k8s.io/v1", "tool"), FakeClock())
    with pytest.raises(CredentialFault, match=r"'tool' cannot be run: .*can't start new thread"):
        await plugin.authorization()
