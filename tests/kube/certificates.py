"""Certificate authorities for one test run: a strict one, and one as old tools made them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

_NAMES = {
    "server": ("localhost", "api.test", "127.0.0.1", "::1"),
    "client": ("client.test",),
    "client2": ("client2.test",),
}
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Certificates:
    """Files of a CA, of a server (localhost and loopback addresses) and of a client."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The CA's certificate."""
        return self.folder / "ca.crt"

    @property
    def client(self) -> tuple[Path, Path]:
        """The client's certificate and key."""
        return self.folder / "client.crt", self.folder / "client.key"

    def server_context(self, *, ask_client: bool = False) -> ssl.SSLContext:
        """Return the TLS settings of the server; with ``ask_client`` it demands a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        if ask_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.authority)
        return context


def make(folder: Path) -> Certificates:
    """Make all of them in ``folder``."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    for name, identities in _NAMES.items():
        issued = authority.issue_cert(*identities, common_name=name)
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.crt")
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
    key = load_pem_private_key((folder / "client.key").read_bytes(), None)
    locked = key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"secret")
    )
    (folder / "locked.key").write_bytes(locked)
    return Certificates(folder)


def make_plain(folder: Path, *, ends: timedelta = _DAY) -> Certificates:
    """Make a CA and a server (localhost) without key identifiers and key usages in ``folder``.

    Clusters have such authorities, and the strict mode of OpenSSL refuses them. The server's
    certificate ends ``ends`` from now. All such authorities have the same name.
    """
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "server")}
    now = datetime.now(UTC)
    extensions: dict[str, x509.ExtensionType] = {
        "ca": x509.BasicConstraints(ca=True, path_length=None),
        "server": x509.SubjectAlternativeName([x509.DNSName("localhost")]),
    }
    for name, key in keys.items():
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named("ca"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * _DAY)
            .not_valid_after(now + (ends if name == "server" else _DAY))
            .add_extension(extensions[name], critical=name == "ca")
            .sign(keys["ca"], hashes.SHA256())
        )
        (folder / f"{name}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
    return Certificates(folder)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
