"""Credential plugins of a kubeconfig (``client.authentication.k8s.io``, v1 and v1beta1).

A plugin is a program that prints an ``ExecCredential``: a token, a client certificate, or both, and
when they expire. It is run at the first request, shortly before the expiry, and after a 401. One
run serves every request that waits for it.
"""

from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.kube.auth import is_token
from lean_sandbox.kube.errors import CredentialFault
from lean_sandbox.kube.tls import load_identity

#: A plugin may ask its own server, or a person; longer than this it is taken for stuck.
PLUGIN_TIMEOUT_S = 60.0
#: Renewed this long before the expiry, so that no request starts with a credential about to end.
EXPIRY_MARGIN_S = 30.0
_STDERR_LIMIT_CHARACTERS = 500


class EnvironmentVariable(msgspec.Struct, frozen=True):
    """What a plugin finds in its environment beside ours."""

    name: str
    value: str


class ExecSettings(msgspec.Struct, frozen=True, rename="camel"):
    """What a kubeconfig says about its plugin, and two things that stand elsewhere in it.

    ``cluster`` is set when the plugin is to be told. A relative ``command`` with a slash in it
    begins at ``folder``, that of the kubeconfig.
    """

    api_version: str
    command: str
    args: tuple[str, ...] | None = None
    env: tuple[EnvironmentVariable, ...] | None = None
    interactive_mode: Literal["Never", "IfAvailable", "Always"] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    cluster: dict[str, Any] | None = None
    folder: str = ""


class _CredentialStatus(msgspec.Struct, frozen=True):
    token: str | None = None
    clientCertificateData: str | None = None
    clientKeyData: str | None = None
    expirationTimestamp: str | None = None


class _Credential(msgspec.Struct, frozen=True):
    apiVersion: str = ""
    kind: str = ""
    status: _CredentialStatus | None = None


class ExecAuth:
    """The credential a plugin prints.

    ``context`` is the TLS context a printed client certificate is loaded into. ``has_terminal``
    says whether a person can be asked.
    """

    def __init__(
        self,
        settings: ExecSettings,
        clock: Clock,
        *,
        context: ssl.SSLContext | None = None,
        environ: Mapping[str, str] | None = None,
        has_terminal: bool = False,
        timeout_s: float = PLUGIN_TIMEOUT_S,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._context = context
        self._environ = dict(os.environ if environ is None else environ)
        self._interactive = has_terminal and settings.interactive_mode != "Never"
        self._timeout_s = timeout_s
        self._lock = anyio.Lock()
        self._ready = False
        self._header: str | None = None
        self._certificate: tuple[str, str] | None = None
        self._expires: datetime | None = None
        self._identity = 0
        #: How often the plugin was run.
        self.runs = 0

    @property
    def identity(self) -> int:
        """Grows with each client certificate that was loaded."""
        return self._identity

    async def authorization(self) -> str | None:
        """Return the header, running the plugin when there is none or it is about to expire."""
        if not self._is_fresh():
            async with self._lock:
                if not self._is_fresh():
                    await self._renew()
        return self._header

    async def refresh(self, refused: str | None, /) -> bool:
        """Run the plugin again unless another request did so since; True when there is news."""
        identity = self._identity
        async with self._lock:
            if self._header == refused and self._identity == identity:
                await self._renew()
        return self._header != refused or self._identity != identity

    def _is_fresh(self) -> bool:
        if not self._ready or self._expires is None:
            return self._ready
        return (self._expires - self._clock.now()).total_seconds() > EXPIRY_MARGIN_S

    async def _renew(self) -> None:
        self.runs += 1
        status = self._parse(await self._run())
        expires = self._expiry(status.expirationTimestamp)
        if status.clientCertificateData and status.clientKeyData:
            self._load((status.clientCertificateData, status.clientKeyData))
        self._header = f"Bearer {status.token}" if status.token else None
        self._expires = expires
        self._ready = True

    async def _run(self) -> bytes:
        settings = self._settings
        command = settings.command
        if os.sep in command:
            command = str(Path(settings.folder, command))
        # The shape of this variable is fixed by the API group's ExecCredential type.
        spec: dict[str, Any] = {"interactive": self._interactive}
        if settings.cluster is not None:
            spec["cluster"] = settings.cluster
        info = {"apiVersion": settings.api_version, "kind": "ExecCredential", "spec": spec}
        environ = self._environ | {pair.name: pair.value for pair in settings.env or ()}
        environ["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        try:
            with anyio.fail_after(self._timeout_s):
                done = await anyio.run_process(
                    [command, *(settings.args or ())],
                    stdin=None if self._interactive else subprocess.DEVNULL,
                    stderr=None if self._interactive else subprocess.PIPE,
                    env=environ,
                    check=False,
                )
        except OSError as problem:
            if isinstance(problem, TimeoutError):
                raise self._fault(f"did not answer within {self._timeout_s:g} s") from problem
            raise self._fault(f"cannot be run: {problem}", settings.install_hint or "") from problem
        if done.returncode != 0:
            said = (done.stderr or b"").decode("utf-8", "replace").strip()
            raise self._fault(f"ended with {done.returncode}: {said[-_STDERR_LIMIT_CHARACTERS:]}")
        return done.stdout

    def _parse(self, output: bytes) -> _CredentialStatus:
        try:
            credential = msgspec.json.decode(output, type=_Credential)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise self._fault(f"did not print an ExecCredential: {problem}") from problem
        wanted = self._settings.api_version
        if credential.kind != "ExecCredential" or credential.apiVersion != wanted:
            raise self._fault(
                f"printed {credential.apiVersion!r} {credential.kind!r}, "
                f"not {wanted!r} 'ExecCredential'"
            )
        status = credential.status or _CredentialStatus()
        if bool(status.clientCertificateData) != bool(status.clientKeyData):
            raise self._fault("printed a certificate without its key, or the reverse")
        if not status.token and not status.clientCertificateData:
            raise self._fault("printed neither a token nor a client certificate")
        if status.token and not is_token(status.token):
            raise self._fault("printed a token that cannot stand in a header")
        return status

    def _expiry(self, timestamp: str | None) -> datetime | None:
        if timestamp is None:
            return None
        try:
            expires = datetime.fromisoformat(timestamp)
        except ValueError as problem:
            raise self._fault(f"printed an impossible expirationTimestamp: {problem}") from problem
        return expires if expires.tzinfo else expires.replace(tzinfo=UTC)

    def _load(self, certificate: tuple[str, str]) -> None:
        if self._context is None or certificate == self._certificate:
            return
        try:
            load_identity(self._context, certificate[0].encode(), certificate[1].encode())
        except OSError as problem:
            raise self._fault(f"printed a client certificate that fails: {problem}") from problem
        self._certificate = certificate
        self._identity += 1

    def _fault(self, problem: str, hint: str = "") -> CredentialFault:
        text = f"credential plugin {self._settings.command!r} {problem}"
        return CredentialFault(f"{text}. {hint}" if hint else text)
