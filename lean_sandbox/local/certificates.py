"""Certificates for a server on loopback, which strict clients accept."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import Final

# Clients that verify by the means of macOS take no server's certificate beyond 825 days.
_LIFETIME: Final = timedelta(days=365)
_ORGANIZATION: Final = "lean-sandbox"


def serving_context(host: str) -> tuple[ssl.SSLContext, bytes]:
    """Return a TLS context for a new certificate, and the authority that signed it (PEM)."""
    import trustme  # noqa: PLC0415 -- slow to import, and few serve HTTPS

    authority = trustme.CA(
        path_length=0,
        organization_name=_ORGANIZATION,
        organization_unit_name="local control plane",
    )
    today = datetime.now(UTC)
    certificate = authority.issue_cert(
        *dict.fromkeys(("localhost", "kubernetes.default", host)),
        common_name="kube-apiserver",
        organization_name=_ORGANIZATION,
        not_before=today - timedelta(days=1),
        not_after=today + _LIFETIME,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context, authority.cert_pem.bytes()
