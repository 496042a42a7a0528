"""A certificate authority for one test run, made by the openssl command."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


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

    def run(*arguments: str) -> None:
        subprocess.run(  # noqa: S603 -- fixed arguments
            ["openssl", *arguments],  # noqa: S607 -- wherever the machine has it
            cwd=folder,
            check=True,
            capture_output=True,
        )

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run(
        "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=ca"
    )
    names = {
        "server": "subjectAltName=DNS:localhost,DNS:api.test,IP:127.0.0.1,IP:::1",
        "client": "extendedKeyUsage=clientAuth",
        "client2": "extendedKeyUsage=clientAuth",
    }
    for name, extension in names.items():
        run("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(extension)
        sign = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        source = ("-in", f"{name}.csr", "-extfile", f"{name}.ext", "-out", f"{name}.crt")
        run("x509", "-req", *source, *sign)
    run("ec", "-in", "client.key", "-aes128", "-passout", "pass:secret", "-out", "locked.key")
    return Certificates(folder)
