"""TLS contexts for talking to an API server, and client certificates put into them."""

from __future__ import annotations

import ssl
from pathlib import Path


def trusting(*, file: Path | None = None, data: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the given authority (PEM), or the system's when none is given.

    Raises OSError or ValueError for what is no certificate.
    """
    context = ssl.create_default_context(cafile=file, cadata=data)
    # Cluster authorities are often made by tools that leave out extensions the strict mode (default
    # since Python 3.13) asks for, and the given file may be an intermediate one. Go accepts both.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    return context


def careless() -> ssl.SSLContext:
    """Return a context that believes any certificate: ``insecure-skip-tls-verify``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def load_identity(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate given as PEM text.

    Python's ssl module takes files only, so both are on disk for a moment, in a private folder.
    Raises OSError (ssl.SSLError is one) for what is no certificate and key, or does not belong
    together. A key with a password is refused, for nobody is there to type it.
    """
    import tempfile  # noqa: PLC0415 -- brings four compression libraries along

    def no_password() -> str:
        raise OSError("the client key is protected by a password, which is not supported")

    with tempfile.TemporaryDirectory(prefix="lean-sandbox-") as folder:
        certificate_file, key_file = Path(folder, "certificate"), Path(folder, "key")
        certificate_file.write_bytes(certificate)
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        context.load_cert_chain(certificate_file, key_file, password=no_password)
