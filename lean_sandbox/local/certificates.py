"""Certificates for a server on loopback, made by the ``openssl`` program."""

from __future__ import annotations

import ssl
import subprocess
import tempfile
from pathlib import Path

__all__ = ["serving_context"]


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)  # noqa: S603, S607


def serving_context(host: str) -> tuple[ssl.SSLContext, bytes]:
    """Return a TLS context for a new certificate, and the authority that signed it (PEM).

    Raises:
        subprocess.CalledProcessError, FileNotFoundError: openssl failed or is not installed.

    """
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        _openssl(
            "req", "-x509", *key, "-days", "365", "-subj", "/CN=lean-sandbox-local-ca",
            "-keyout", str(at / "ca.key"), "-out", str(at / "ca.crt"),
        )  # fmt: skip
        (at / "names").write_text(
            f"subjectAltName=DNS:localhost,DNS:kubernetes.default,IP:{host}\n"
            "extendedKeyUsage=serverAuth\n"
        )
        _openssl(
            "req", *key, "-subj", "/CN=kube-apiserver",
            "-keyout", str(at / "server.key"), "-out", str(at / "server.csr"),
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", str(at / "server.csr"), "-CA", str(at / "ca.crt"),
            "-CAkey", str(at / "ca.key"), "-CAcreateserial", "-days", "365",
            "-extfile", str(at / "names"), "-out", str(at / "server.crt"),
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(at / "server.crt", at / "server.key")
        return context, (at / "ca.crt").read_bytes()
