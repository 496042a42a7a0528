"""TLS: who is trusted, under which name, and who we say we are."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from lean_sandbox.kube import sockets
from lean_sandbox.kube.auth import load_identity
from lean_sandbox.kube.connection import Connection, insecure_context, tls_context
from lean_sandbox.kube.errors import Asked, ConnectFailed, ProtocolFault, RequestTimeout
from lean_sandbox.kube.transport import Transport
from tests.kube.certificates import Certificates, make, make_plain
from tests.kube.homes import Home
from tests.kube.server import Answer, chunked, first_piece, in_turn, reply, serve


async def ask(connection: Connection) -> int:
    """Make one request and return the status."""
    transport = Transport(connection)
    try:
        return (await transport.request("GET", "/")).status
    finally:
        await transport.aclose()


async def test_a_server_signed_by_the_authority_is_trusted(certificates: Certificates) -> None:
    """Requests and streams run over TLS, by address and by name."""
    script = in_turn(reply(), chunked([b"x"]), reply())
    async with serve(script, tls=certificates.server_context()) as server:
        context = tls_context(file=certificates.authority)
        transport = Transport(Connection(server.url, context))
        assert (await transport.request("GET", "/")).body == b"{}"
        async with transport.stream("/", asked=Asked("watch")) as stream:
            assert await first_piece(stream) == b"x"
        await transport.request("GET", "/")
        assert transport.counted.connections_opened == 2
        await transport.aclose()
        await server.closed(1)


async def test_the_keys_of_connections_are_written_nowhere(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sets SSLKEYLOGFILE means browsers; a file that cannot be written is no obstacle."""
    for file in (tmp_path / "keys", Path("/nowhere/keys")):
        monkeypatch.setenv("SSLKEYLOGFILE", str(file))
        context = tls_context(file=certificates.authority)
        async with serve(in_turn(reply()), tls=certificates.server_context()) as server:
            assert await ask(Connection(server.url, context)) == 200
        assert not file.exists()


async def test_a_closed_tls_connection_is_noticed_before_use(certificates: Certificates) -> None:
    """The farewell of TLS counts as a close as well."""
    script = in_turn(reply(close=True), reply())
    async with serve(script, tls=certificates.server_context()) as server:
        transport = Transport(Connection(server.url, tls_context(file=certificates.authority)))
        await transport.request("GET", "/")
        await server.closed(1)
        await transport.request("POST", "/")
        assert transport.counted.retries == {}
        await transport.aclose()


async def test_what_is_larger_than_a_socket_takes_at_once_arrives_whole(
    certificates: Certificates,
) -> None:
    """Request and answer of some MiB go through in parts, in both directions."""
    body = bytes(range(256)) * 20_000
    async with serve(in_turn(reply(200, body)), tls=certificates.server_context()) as server:
        transport = Transport(Connection(server.url, tls_context(file=certificates.authority)))
        assert (await transport.request("POST", "/", body=body)).body == body
        await transport.aclose()
    assert server.requests[0].body == body


async def test_a_handshake_that_stalls_ends_at_the_deadline(certificates: Certificates) -> None:
    """A peer that accepts and stays silent holds up neither the request nor other tasks."""
    context = tls_context(file=certificates.authority)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = Transport(Connection(f"https://127.0.0.1:{silent.getsockname()[1]}", context))
        with pytest.raises(RequestTimeout):
            await transport.request("GET", "/", timeout_s=0.05)
        peer, _ = silent.accept()
        with peer:
            while peer.recv(65536):
                pass
        assert transport._limiter.slots.in_use == 0


async def test_an_unknown_authority_is_refused_and_named(certificates: Certificates) -> None:
    """Without an authority the system's are trusted, and nothing is sent to a stranger."""
    async with serve(in_turn(), tls=certificates.server_context()) as server:
        with pytest.raises(ConnectFailed, match="certificate-authority"):
            await ask(Connection(server.url))
    assert server.requests == []


async def test_the_name_is_checked_and_can_be_replaced(certificates: Certificates) -> None:
    """``tls-server-name`` is what the certificate must say, instead of the URL's host."""
    context = tls_context(file=certificates.authority)
    script = in_turn(reply())
    async with serve(script, tls=certificates.server_context()) as server:
        with pytest.raises(ConnectFailed, match=r"expected name 'other\.test'"):
            await ask(Connection(server.url, context, tls_server_name="other.test"))
        with pytest.raises(ConnectFailed, match=r"cannot connect to .* an empty string"):
            await ask(Connection(server.url, insecure_context(), tls_server_name="."))
        assert await ask(Connection(server.url, context, tls_server_name="api.test")) == 200


async def test_a_dot_at_the_end_of_a_name_is_no_part_of_it(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps a resolver from its search list; the certificate has the name without it."""
    context = tls_context(file=certificates.authority)
    async with serve(in_turn(reply(), reply()), tls=certificates.server_context()) as server:
        asked: list[str] = []
        find = sockets._addresses
        port = int(server.url.rpartition(":")[2])

        async def found(host: str, port: int) -> list[Any]:
            asked.append(host)
            return await find("127.0.0.1", port)

        monkeypatch.setattr(sockets, "_addresses", found)
        assert await ask(Connection(f"https://api.test.:{port}", context)) == 200
        assert asked == ["api.test."]
        assert await ask(Connection(server.url, context, tls_server_name="localhost.")) == 200


async def test_a_client_certificate_is_shown(certificates: Certificates) -> None:
    """A server that asks for a certificate gets ours; without one the handshake fails."""
    with_client = certificates.server_context(ask_client=True)
    async with serve(in_turn(reply()), tls=with_client) as server:
        context = tls_context(file=certificates.authority)
        load_identity(context, *(file.read_bytes() for file in certificates.client))
        assert await ask(Connection(server.url, context)) == 200


async def test_a_server_that_misses_a_client_certificate_is_quoted(
    certificates: Certificates,
) -> None:
    """With TLS 1.3 it says so after the handshake: its alert is the reason, not that it closed."""
    with_client = certificates.server_context(ask_client=True)
    with_client.minimum_version = ssl.TLSVersion.TLSv1_3
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            peer, _ = listener.accept()
            shaken = with_client.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
            with pytest.raises(ssl.SSLError):
                shaken.do_handshake()
            # A close before the request was sent would break the sending of it.
            with socket.socket(fileno=shaken.detach()) as unsecured:
                while unsecured.recv(65536):
                    pass

        connection = Connection(
            f"https://127.0.0.1:{listener.getsockname()[1]}",
            tls_context(file=certificates.authority),
        )
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, refuse)
            with pytest.raises(ProtocolFault, match=r"without an answer: .*certificate required"):
                await ask(connection)


async def test_a_server_without_tls_is_a_connect_failure() -> None:
    """Speaking TLS to plain HTTP, or to a peer that hangs up, fails with a sentence."""
    async with serve(in_turn(Answer(close=True))) as server:
        connection = Connection(server.url.replace("http:", "https:"), insecure_context())
        with pytest.raises(ConnectFailed, match="TLS with"):
            await ask(connection)


async def test_https_where_the_server_speaks_http_is_told() -> None:
    """What is no answer of TLS."""

    def answer(listener: socket.socket) -> None:
        taken, _ = listener.accept()
        with taken:
            taken.recv(65536)
            taken.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(
            f"https://127.0.0.1:{listener.getsockname()[1]}", insecure_context()
        )
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, answer, listener)
            with pytest.raises(ConnectFailed, match="does not speak TLS there: try http://"):
                await ask(connection)


async def test_http_where_the_server_speaks_tls_is_told_until_it_has_answered(
    certificates: Certificates,
) -> None:
    """A server that ends later, and has answered over HTTP before, does not want TLS."""
    async with serve(in_turn(reply()), tls=certificates.server_context()) as server:
        with pytest.raises(ProtocolFault, match="begins with http://: try https://"):
            await ask(Connection(server.url.replace("https:", "http:")))
    async with serve(in_turn(reply(close=True), Answer(close=True))) as server:
        transport = Transport(Connection(server.url))
        await transport.request("GET", "/")
        with pytest.raises(ProtocolFault) as caught:
            await transport.request("GET", "/")
        await transport.aclose()
    assert "https" not in str(caught.value)


async def test_a_server_that_resets_what_it_has_accepted_leaves_no_socket_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However early a connection breaks, it is a connect failure, and closed by us."""
    at_once = struct.pack("ii", 1, 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        configure = socket.socket.setsockopt

        def reset(self: socket.socket, *arguments: Any) -> None:
            configure(self, *arguments)
            monkeypatch.undo()
            peer, _ = listener.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            peer.close()

        # The first thing that is done to a socket which is connected.
        monkeypatch.setattr(socket.socket, "setsockopt", reset)
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        # A socket that is left to the garbage collection fails the test.
        with pytest.raises(ConnectFailed, match="TLS with"):
            await ask(Connection(url, insecure_context()))


def test_a_locked_key_never_asks_the_terminal(certificates: Certificates) -> None:
    """A key with a password is an error, not a prompt nobody sees."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    certificate, _ = certificates.client
    locked = Path(certificates.folder, "locked.key")
    with pytest.raises(OSError, match="password"):
        load_identity(context, certificate.read_bytes(), locked.read_bytes())


@pytest.fixture
def plain(tmp_path: Path) -> Callable[..., Certificates]:
    """Return a maker of authorities without key identifiers."""

    def made(name: str, **options: timedelta) -> Certificates:
        folder = tmp_path / name
        folder.mkdir()
        return make_plain(folder, **options)

    return made


async def test_an_authority_without_key_identifiers_is_trusted(
    plain: Callable[..., Certificates],
) -> None:
    """The strict mode, default since Python 3.13, refuses it; clusters have such authorities."""
    old = plain("old")
    strict = ssl.create_default_context(cafile=old.authority)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    async with serve(in_turn(reply()), tls=old.server_context()) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        with pytest.raises(ConnectFailed, match="was refused"):
            await ask(Connection(url, strict))
        assert await ask(Connection(url, tls_context(file=old.authority))) == 200


@pytest.mark.parametrize(
    ("host", "hours", "trusted", "said"),
    [
        ("localhost", 1, "other", "signature failure"),
        ("localhost", -1, "old", "certificate has expired"),
        ("127.0.0.1", 1, "old", r"expected name '127\.0\.0\.1'"),
    ],
)
async def test_without_key_identifiers_chain_dates_and_name_are_verified(
    plain: Callable[..., Certificates], host: str, hours: int, trusted: str, said: str
) -> None:
    """Another authority of the same name has signed nothing; what has ended is refused."""
    made = {name: plain(name, ends=timedelta(hours=hours)) for name in ("old", "other")}
    async with serve(in_turn(), tls=made["old"].server_context()) as server:
        url = server.url.replace("127.0.0.1", host)
        with pytest.raises(ConnectFailed, match=said):
            await ask(Connection(url, tls_context(file=made[trusted].authority)))


async def test_a_rotated_authority_is_trusted_without_a_restart(
    home: Home, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The kubelet writes it to the service account's file; a request that fails has that read."""
    rotated = make(tmp_path_factory.mktemp("rotated"))
    home.mount(certificates)
    file = home.account / "ca.crt"
    async with serve(in_turn(reply()), tls=rotated.server_context()) as server:
        port = server.url.rpartition(":")[2]
        home.environ |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        transport = Transport(home.load())
        file.unlink()
        for _ in range(2):
            with pytest.raises(ConnectFailed, match="expected name"):
                await transport.request("GET", "/")
            file.write_bytes(certificates.authority.read_bytes() + rotated.authority.read_bytes())
        assert (await transport.request("GET", "/")).status == 200
        await transport.aclose()
