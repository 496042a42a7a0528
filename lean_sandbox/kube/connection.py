"""Where the API server is and how to authenticate to it: what ``kubeconfig.load`` returns."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from lean_sandbox.errors import ConfigError
from lean_sandbox.kube.auth import Auth

_LOOPBACK = re.compile(r"127(?:\.[0-9]{1,3}){3}", re.ASCII)
# What stands before an @, or behind a question or number sign, may be a password or a token.
_NOT_SHOWN = re.compile(r"^(\w+://)?.*@|[?#].*", re.DOTALL)


class ServerAddress(msgspec.Struct, frozen=True):
    """A server URL taken apart.

    ``host`` is without brackets, ``authority`` is what goes into the Host header, ``base_path`` has
    no slash at its end ("" when the URL has no path).
    """

    host: str
    port: int
    tls: bool
    authority: str
    base_path: str

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read along: TLS, or a loopback address."""
        return self.tls or self.host in ("localhost", "::1") or bool(_LOOPBACK.fullmatch(self.host))


class Connection(msgspec.Struct, frozen=True):
    """Everything a transport needs to reach one API server.

    ``ssl_context`` is None for plain HTTP. ``tls_server_name`` replaces the URL's host in the check
    of the server's certificate. ``source`` says in words where the settings came from.
    """

    server: str
    ssl_context: ssl.SSLContext | None = None
    auth: Auth = msgspec.field(default_factory=Auth)
    tls_server_name: str | None = None
    source: str = ""
    #: The file with the server's authority, read again when a certificate was refused.
    authority: Path | None = None
    #: Whether these are the settings of a Pod's service account.
    in_cluster: bool = False

    @property
    def address(self) -> ServerAddress:
        """The server URL taken apart. Raises ConfigError when it is not one."""
        return parse_server(self.server, source=self.source)


def parse_server(server: str, *, source: str = "") -> ServerAddress:
    """Take ``http[s]://host[:port][/base]`` apart. Raises ConfigError for any other URL."""
    shown = _NOT_SHOWN.sub(r"\1...", server)

    def wrong(problem: str) -> ConfigError:
        return ConfigError(
            f"server {shown!r} {problem}",
            source=source,
            field="cluster.server",
            way_out="give a URL such as https://host:6443",
        )

    try:
        url = urlsplit(server)
        port = url.port
    except ValueError as problem:
        raise wrong("is not a URL: host or port cannot be understood") from problem
    is_plain = server.isascii() and server.isprintable() and " " not in server
    has_more = url.username is not None or url.query or url.fragment
    if url.scheme not in ("http", "https") or not url.hostname or has_more or not is_plain:
        raise wrong("is not of the form https://host:port/base, or http://")
    tls = url.scheme == "https"
    # A zone index (fe80::1%25eth0) is escaped in a URL, is meant for the resolver, and never sent.
    host = unquote(url.hostname)
    plain = host.partition("%")[0]
    authority = f"[{plain}]" if ":" in plain else plain
    if port is not None:
        authority = f"{authority}:{port}"
    return ServerAddress(
        host=host,
        port=port or (443 if tls else 80),
        tls=tls,
        authority=authority,
        base_path=url.path.rstrip("/"),
    )


def to_listener(url: str, ca_file: Path | None) -> Connection:
    """Return how to reach the metrics listener of a controller, by the flags --url and --ca-file.

    The address of its page /metrics is as good as that of the listener.

    Raises ConfigError, which names the flag.
    """
    base = url.removesuffix("/").removesuffix("/metrics")
    try:
        address = parse_server(base)
    except ConfigError as error:
        way_out = "give one such as http://127.0.0.1:8080"
        raise ConfigError(error.problem, source="--url", way_out=way_out) from error
    try:
        context = tls_context(file=ca_file) if address.tls else None
    except (OSError, ValueError) as error:
        raise ConfigError(f"--ca-file: {ca_file} is not a certificate: {error}") from error
    return Connection(base, context, source="--url")


def tls_context(*, file: Path | None = None, data: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts this authority, or the system's. Raises OSError, ValueError."""
    # Not that of create_default_context, which writes the keys of all connections into the file of
    # SSLKEYLOGFILE, and since Python 3.13 asks for extensions that the authorities of many clusters
    # lack. The given file may be an intermediate one. Go accepts both.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if file is None and data is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(file, cadata=data)
    context.set_alpn_protocols(["http/1.1"])
    return context


def insecure_context() -> ssl.SSLContext:
    """Return a context that accepts any certificate: ``insecure-skip-tls-verify``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
