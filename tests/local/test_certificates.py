"""The certificates that the embedded control plane makes."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.conformance.api import Api
from tests.local.servers import MAPS
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_tls_serves_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    """The kubeconfig carries the authority, a token and the address."""
    settings = LocalSettings(tls=True)
    async with ControlPlane(settings, crds=[]) as plane:
        assert plane.url.startswith("https://127.0.0.1:")
        assert plane.ca_pem is not None
        path = plane.kubeconfig(tmp_path / "config", namespace="kube-system")
        written = yaml.safe_load(path.read_text())
        assert written["clusters"][0]["cluster"]["server"] == plane.url
        assert written["contexts"][0]["context"]["namespace"] == "kube-system"
        token = written["users"][0]["user"]["token"]
        async with Api(plane.url, token, ca=plane.ca_pem.decode()) as api:
            assert (await api.get("/version")).status == 200
            assert (await api.as_user(None).get(MAPS)).status == 403


async def test_strict_clients_accept_the_certificate() -> None:
    """The default contexts of urllib and aiohttp, as strict as Python 3.13 makes them."""
    async with ControlPlane(LocalSettings(tls=True), crds=[]) as plane:
        assert plane.ca_pem is not None
        context = ssl.create_default_context(cadata=plane.ca_pem.decode())
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        urls = [f"{plane.url}/version", f"{plane.url}/version".replace("127.0.0.1", "localhost")]

        def status(url: str) -> int:
            with urllib.request.urlopen(url, context=context, timeout=PATIENCE_S) as answer:  # noqa: S310
                return int(answer.status)

        assert [await asyncio.to_thread(status, url) for url in urls] == [200, 200]
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector) as session:
            for url in urls:
                async with session.get(url) as answer:
                    assert answer.status == 200


async def test_the_certificates_say_what_they_are_for() -> None:
    """The authority signs and is known by its key; the server names its hosts and its signer."""
    async with ControlPlane(LocalSettings(tls=True), crds=[]) as plane:
        assert plane.ca_pem is not None
        port = int(plane.url.rpartition(":")[2])
        address = ("127.0.0.1", port)
        sent = await asyncio.to_thread(ssl.get_server_certificate, address, timeout=PATIENCE_S)
        signer = x509.load_pem_x509_certificate(plane.ca_pem)
        server = x509.load_pem_x509_certificate(sent.encode())
    server.verify_directly_issued_by(signer)
    told = signer.extensions
    own = server.extensions
    assert told.get_extension_for_class(x509.BasicConstraints).value.ca
    use = told.get_extension_for_class(x509.KeyUsage).value
    assert use.key_cert_sign
    assert use.crl_sign
    identifier = told.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    signed_by = own.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert signed_by.key_identifier == identifier
    assert not own.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    purposes = own.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert ExtendedKeyUsageOID.SERVER_AUTH in purposes
    names = own.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "kubernetes.default"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert server.not_valid_after_utc - server.not_valid_before_utc < timedelta(days=825)
