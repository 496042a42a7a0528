"""Metrics over TLS: who is let in, and certificates that are replaced while it serves."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from lean_sandbox.cli import main
from lean_sandbox.config.sources import EXIT_CONFIG
from lean_sandbox.errors import ConfigError
from lean_sandbox.http.tls import Certificates
from tests.kube import certificates as authority
from tests.metrics.scrape import Scraper, serving
from tests.support.world import open_world

GCM_128 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
GCM_256 = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return two folders with ``tls.crt`` and ``tls.key`` of different authorities."""
    made = []
    for name in ("first", "second"):
        folder = tmp_path_factory.mktemp(name)
        authority.make(folder)
        shutil.copy(folder / "server.crt", folder / "tls.crt")
        shutil.copy(folder / "server.key", folder / "tls.key")
        made.append(folder)
    return made[0], made[1]


@asynccontextmanager
async def secured(folder: Path, **settings: Any) -> AsyncIterator[Scraper]:
    """Serve metrics over TLS."""
    wanted = {"metrics_secure_serving": True, "metrics_cert_dir": str(folder), **settings}
    async with open_world() as world, serving(world, **wanted) as scraper:
        yield scraper


async def ask(scraper: Scraper, folder: Path, *, suites: str = "", **limits: Any) -> httpx.Response:
    """Scrape with a client that trusts the authority of a folder."""
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if suites:
        context.set_ciphers(suites)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name, value in limits.items():
            setattr(context, name, value)
    async with httpx.AsyncClient(verify=context) as client:
        return await client.get(scraper.url("/metrics").replace("http:", "https:"))


async def test_metrics_are_served_over_tls_and_not_without(folders: tuple[Path, Path]) -> None:
    """A client that trusts the authority is answered; another one, and plain HTTP, are not."""
    first, second = folders
    async with secured(first) as scraper:
        answer = await ask(scraper, first)
        with pytest.raises(httpx.HTTPError):
            await ask(scraper, second)
        with pytest.raises(httpx.HTTPError):
            await scraper.get("/metrics")
        probe = await scraper.get("/healthz", "health")
        await scraper.clock.advance(1.0)
        counted = (await ask(scraper, first)).text
    assert "agent_sandbox_build_info" in answer.text
    assert probe.status_code == 200
    assert 'lean_sandbox_endpoint_broken_total{listener="metrics",cause="tls"} 2' in counted


async def test_a_renewed_certificate_is_served_to_the_next_connection(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """Files are read again when they change; half a change keeps the old pair."""
    first, second = folders
    for name in ("tls.crt", "tls.key"):
        shutil.copy(first / name, tmp_path / name)
    async with secured(tmp_path) as scraper:
        await ask(scraper, first)
        shutil.copy(second / "tls.crt", tmp_path / "new")
        os.replace(tmp_path / "new", tmp_path / "tls.crt")  # noqa: PTH105 -- as volumes are swapped
        await ask(scraper, first)
        shutil.copy(second / "tls.key", tmp_path / "new")
        os.replace(tmp_path / "new", tmp_path / "tls.key")  # noqa: PTH105
        answer = await ask(scraper, second)
        (tmp_path / "tls.key").unlink()
        without = await ask(scraper, second)
    assert answer.status_code == without.status_code == 200


async def test_the_oldest_version_is_kept_to(folders: tuple[Path, Path]) -> None:
    """By default TLS 1.2 is the oldest; a higher one can be asked for."""
    first, _ = folders
    old: dict[str, Any] = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    ancient: dict[str, Any] = {
        "minimum_version": ssl.TLSVersion.TLSv1_1,
        "maximum_version": ssl.TLSVersion.TLSv1_1,
    }
    async with secured(first) as scraper:
        assert (await ask(scraper, first, **old)).status_code == 200
        with pytest.raises(httpx.HTTPError):
            await ask(scraper, first, **ancient)
    async with secured(first, tls_min_version="VersionTLS13") as scraper:
        assert (await ask(scraper, first)).status_code == 200
        with pytest.raises(httpx.HTTPError):
            await ask(scraper, first, **old)


@pytest.mark.parametrize(
    ("version", "suite", "named"),
    [
        ("VersionTLS10", "", "--tls-min-version must be one of VersionTLS12, VersionTLS13"),
        ("VersionTLS11", "", "--tls-min-version must be one of VersionTLS12, VersionTLS13"),
        ("", "TLS_RSA_WITH_RC4_128_SHA", "--tls-cipher-suites: 'TLS_RSA_WITH_RC4_128_SHA'"),
        ("", "TLS_RSA_WITH_AES_128_CBC_SHA", "'TLS_RSA_WITH_AES_128_CBC_SHA' is not the IANA"),
    ],
)
def test_versions_and_suites_that_are_broken_are_refused(
    version: str, suite: str, named: str, folders: tuple[Path, Path]
) -> None:
    """The reference takes them; here the flag and what can be written instead are named."""
    with pytest.raises(ConfigError, match=re.escape(named)):
        Certificates(str(folders[0]), version, (suite,) if suite else ())


# The number of each suite, as IANA registers it with the name.
SUITES = {
    "TLS_RSA_WITH_AES_128_CBC_SHA256": 0x003C,
    "TLS_RSA_WITH_AES_128_GCM_SHA256": 0x009C,
    "TLS_RSA_WITH_AES_256_GCM_SHA384": 0x009D,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": 0xC023,
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": 0xC027,
    GCM_128: 0xC02B,
    GCM_256: 0xC02C,
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": 0xC02F,
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": 0xC030,
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCA8,
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCA9,
}
SUITES_13 = {
    "TLS_AES_128_GCM_SHA256": 0x1301,
    "TLS_AES_256_GCM_SHA384": 0x1302,
    "TLS_CHACHA20_POLY1305_SHA256": 0x1303,
}


def offered(folder: Path, *suites: str) -> set[int]:
    """Return the numbers of the suites that are offered."""
    ciphers = Certificates(str(folder), "", suites).context().get_ciphers()
    return {one["id"] & 0xFFFF for one in ciphers}


@pytest.mark.parametrize("name", [*SUITES, *SUITES_13])
def test_each_name_is_that_of_its_suite(name: str, folders: tuple[Path, Path]) -> None:
    """By the numbers on the wire. Those of TLS 1.3 are offered always, and cannot be chosen."""
    always = set(SUITES_13.values())
    if name in SUITES:
        assert offered(folders[0], name) == always | {SUITES[name]}
    else:
        assert offered(folders[0], name) == offered(folders[0]) > always
        assert SUITES_13[name] in always


async def test_only_the_suites_that_are_named_are_offered(folders: tuple[Path, Path]) -> None:
    """A client of TLS 1.2 without a common suite is refused; names of TLS 1.3 change nothing."""
    first, _ = folders
    old: dict[str, Any] = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    async with secured(first, tls_cipher_suites=(GCM_256, "TLS_AES_128_GCM_SHA256")) as scraper:
        assert (await ask(scraper, first, **old)).status_code == 200
        with pytest.raises(httpx.HTTPError):
            await ask(scraper, first, suites="ECDHE-ECDSA-AES128-GCM-SHA256", **old)
        assert (await ask(scraper, first, suites="ECDHE-ECDSA-AES256-GCM-SHA384", **old)).is_success


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--metrics-secure-serving"], "--metrics-cert-dir"),
        (["--metrics-secure-serving", "--metrics-cert-dir=/nowhere"], "/nowhere/tls.crt"),
        (["--metrics-secure-serving", "--metrics-cert-dir=HERE"], "--metrics-cert-dir"),
        (["--metrics-secure-serving", "--metrics-cert-dir=GOOD", "--tls-min-version=1.2"], "1.2"),
        (
            ["--metrics-secure-serving", "--metrics-cert-dir=GOOD", "--tls-cipher-suites=AES"],
            "--tls-cipher-suites: 'AES'",
        ),
    ],
)
def test_what_cannot_be_served_ends_the_start(
    flags: list[str],
    said: str,
    folders: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kubeconfig: Path,
) -> None:
    """Missing and broken files, unknown versions and suites end the process with words."""
    (tmp_path / "tls.crt").write_text("no certificate")
    (tmp_path / "tls.key").write_text("no key")
    places = {"HERE": str(tmp_path), "GOOD": str(folders[0])}
    given = [flag.replace("HERE", places["HERE"]).replace("GOOD", places["GOOD"]) for flag in flags]
    assert main(["run", f"--kubeconfig={kubeconfig}", *given]) == EXIT_CONFIG
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["another key", "no file"])
async def test_files_that_cannot_be_loaded_are_told_once(
    damage: str, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """However many connect meanwhile, the last good certificate serves them, and the next one."""
    first, second = folders
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes((first / name).read_bytes())
    certificates = Certificates(str(tmp_path), "", ())
    good = certificates.context()
    if damage == "no file":
        (tmp_path / "tls.key").unlink()
    else:
        (tmp_path / "tls.key").write_bytes((second / "tls.key").read_bytes())
    with capture_logs() as lines:
        assert all(certificates.context() is good for _ in range(5))
        (tmp_path / "tls.crt").write_bytes((second / "tls.crt").read_bytes())
        (tmp_path / "tls.key").write_bytes((second / "tls.key").read_bytes())
        assert certificates.context() is not good
    told = [line["event"] for line in lines]
    assert told == ["certificate_not_loaded", "certificate_loaded"]
