"""TLS for the metrics listener: what the flags say, and certificates that may be replaced."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import structlog

from lean_sandbox.errors import ConfigError, refuse_password

log = structlog.get_logger("endpoints")

_VERSIONS: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
# OpenSSL's name of each suite that Go's TLS knows, by its IANA name; those with RC4, 3DES or SHA-1
# are left out. Those of TLS 1.3 have no name here: they cannot be chosen, in Go as here, but naming
# them is not a mistake.
_SUITES: Final = {
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}


class Certificates:
    """Returns the TLS context for a connection, loaded again when the files have changed."""

    def __init__(self, folder: str, min_version: str, suites: tuple[str, ...]) -> None:
        """Load ``tls.crt`` and ``tls.key`` of ``folder``. Raises ConfigError, naming the flag."""
        self._certificate = Path(folder, "tls.crt")
        self._key = Path(folder, "tls.key")
        if min_version not in _VERSIONS:
            known = ", ".join(name for name in _VERSIONS if name)
            raise ConfigError(f"--tls-min-version must be one of {known}, not {min_version!r}")
        for name in suites:
            if name not in _SUITES:
                raise ConfigError(
                    f"--tls-cipher-suites: {name!r} is not the IANA name of a safe suite"
                )
        self._version = _VERSIONS[min_version]
        self._ciphers = ":".join(_SUITES[name] for name in suites if _SUITES[name])
        self._seen = self._stamps()
        try:
            self._context = self._load()
        except ssl.SSLError as error:
            raise ConfigError(f"--metrics-cert-dir, --tls-cipher-suites: {error}") from error
        except OSError as error:
            raise ConfigError(
                f"--metrics-cert-dir: {error.filename or folder}: {error.strerror or error}"
            ) from error

    def context(self) -> ssl.SSLContext:
        """Return the context; the previous one if the new files do not match (yet).

        Files that cannot be loaded are tried again once they have changed.
        """
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._context = self._load()
            except OSError as error:
                log.warning("certificate_not_loaded", path=str(self._certificate), error=str(error))
            else:
                log.info("certificate_loaded", path=str(self._certificate))
        return self._context

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(self._certificate), _stamp(self._key)]

    def _load(self) -> ssl.SSLContext:
        for path in (self._certificate, self._key):
            # OpenSSL does not say which of the two is missing.
            path.open("rb").close()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._version
        if self._ciphers:
            context.set_ciphers(self._ciphers)
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._certificate, self._key, password=refuse_password)
        return context


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    # The time of a change includes one of the rights.
    return found.st_ctime_ns, found.st_ino
