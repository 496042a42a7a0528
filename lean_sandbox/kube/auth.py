"""Credentials: the Authorization header, and client certificates."""

from __future__ import annotations

import os
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.errors import refuse_password
from lean_sandbox.kube.errors import CredentialFault
from lean_sandbox.model.times import parse_rfc3339
from lean_sandbox.threads import Call

# The kubelet rotates a token at 80 % of its life time, which is at least 10 minutes.
_TOKEN_FILE_MAX_AGE_S = 60.0
#: A plugin may ask its own server, or a person; longer than this it is taken for stuck.
_PLUGIN_TIMEOUT_S = 60.0
#: Renewed this long before the expiry, so that no request starts with a credential about to end.
_EXPIRY_MARGIN = timedelta(seconds=30)
#: Used for at least so long, whatever its expiry says: clocks may differ by more than its life.
_LEAST_USE = timedelta(seconds=10)
_NEVER = datetime.max.replace(tzinfo=UTC)


class Auth:
    """A header that never changes; none for an open server or a client certificate."""

    #: Grows when the TLS client certificate was replaced: older connections have the old.
    identity = 0
    #: Reads of a token that failed while an earlier one was still in use.
    failed_reads = 0

    def __init__(self, header: str | None = None) -> None:
        self._header = header

    async def authorization(self) -> str | None:
        """Return the header of the next request, None for none. Raises CredentialFault."""
        return self._header

    async def refresh(self, _refused: str | None, /) -> bool:
        """Look, after a 401, for a newer credential; return whether there is one."""
        return False


class TokenFileAuth(Auth):
    """A token in a file that somebody else keeps fresh, such as a service account's.

    Read at first use, once a minute, and after a 401. While the file cannot be read an earlier
    token is used. The read is done in place: some hundred bytes in memory-backed storage.
    """

    def __init__(self, file: Path, clock: Clock) -> None:
        super().__init__()
        self._file = file
        self._clock = clock
        self._read_at = 0.0

    async def authorization(self) -> str | None:
        """Return the header of the current token; CredentialFault when there never was one."""
        age_s = self._clock.monotonic() - self._read_at
        if self._header is None or age_s >= _TOKEN_FILE_MAX_AGE_S:
            self._read()
        return self._header

    async def refresh(self, refused: str | None, /) -> bool:
        """Read the file again; return whether it holds another token than the refused one."""
        self._read()
        return self._header != refused

    def _read(self) -> None:
        self._read_at = self._clock.monotonic()
        try:
            token = self._file.read_text(encoding="utf-8").strip()
            problem = "" if is_token(token) else "it does not hold a token"
        except (OSError, UnicodeDecodeError) as fault:
            problem = str(fault)
        if not problem:
            self._header = f"Bearer {token}"
        elif self._header is None:
            raise CredentialFault(f"token file {self._file} cannot be used: {problem}")
        else:
            self.failed_reads += 1


def is_token(text: str) -> bool:
    """Return whether ``text`` can stand in a header line."""
    return bool(text) and text.isascii() and text.isprintable()


def load_identity(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate given as PEM text. Raises OSError (ssl.SSLError is one).

    Python's ssl module takes files only, so both are on disk for a moment, in a private folder.
    """
    import tempfile  # noqa: PLC0415 -- brings four compression libraries along

    with tempfile.TemporaryDirectory(prefix="lean-sandbox-") as folder:
        certificate_file = Path(folder, "certificate")
        key_file = Path(folder, "key")
        certificate_file.write_bytes(certificate)
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        context.load_cert_chain(certificate_file, key_file, password=refuse_password)


class EnvironmentVariable(msgspec.Struct, frozen=True):
    """A variable that a plugin gets in addition to our environment."""

    name: str
    value: str


class ExecSettings(msgspec.Struct, frozen=True, rename="camel"):
    """What a kubeconfig says about its plugin; ``cluster`` is what the plugin is passed, if at all.

    A relative ``command`` with a slash in it begins at ``folder``, that of the kubeconfig.
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


class ExecAuth(Auth):
    """The credential a plugin prints (``client.authentication.k8s.io``, v1 and v1beta1).

    The plugin is run at the first request, shortly before the expiry, and after a 401; one run
    serves every request that waits for it, and goes on if those are given up: a slow plugin would
    never finish. The end of the process does not wait for it. ``context`` is the TLS context a
    printed certificate is loaded into. ``has_terminal`` says whether a person can be asked.
    """

    def __init__(
        self,
        settings: ExecSettings,
        clock: Clock,
        *,
        context: ssl.SSLContext | None = None,
        has_terminal: bool = False,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._clock = clock
        self._context = context
        self._interactive = has_terminal and settings.interactive_mode != "Never"
        self._certificate: tuple[str, str] | None = None
        # The run of the plugin, until somebody has taken in what it has printed.
        self._run: Call[tuple[_CredentialStatus, datetime]] | None = None
        self._fresh_until = datetime.min.replace(tzinfo=UTC)

    async def authorization(self) -> str | None:
        """Return the header, running the plugin when there is none or it is about to expire."""
        if self._clock.now() >= self._fresh_until:
            await self._renew()
        return self._header

    async def refresh(self, refused: str | None, /) -> bool:
        """Run the plugin again unless another request did since; return whether that helped."""
        identity = self.identity
        if self._header == refused:
            await self._renew()
        return self._header != refused or self.identity != identity

    async def _renew(self) -> None:
        run = self._run = self._run or Call(self._ask)
        try:
            status, expires = await run.result()
        except Exception as problem:
            self._drop(run)
            if isinstance(problem, OSError):
                raise self._fault(f"cannot be run: {problem}") from problem
            raise
        # Whoever waits and is not given up takes it in.
        if self._drop(run):
            if status.clientCertificateData and status.clientKeyData:
                self._load((status.clientCertificateData, status.clientKeyData))
            self._header = f"Bearer {status.token}" if status.token else None
            soonest = self._clock.now() + _LEAST_USE + _EXPIRY_MARGIN
            self._fresh_until = max(expires, soonest) - _EXPIRY_MARGIN

    def _drop(self, run: Call[tuple[_CredentialStatus, datetime]]) -> bool:
        """Forget a run that has ended; return whether nobody has done so before."""
        is_first = self._run is run
        if is_first:
            self._run = None
        return is_first

    def _ask(self) -> tuple[_CredentialStatus, datetime]:
        status = self._parse(self._output())
        return status, self._expiry(status)

    def _output(self) -> bytes:
        settings = self._settings
        command = settings.command
        if os.sep in command:
            command = str(Path(settings.folder, command))
        # The shape of this variable is fixed by the API group's ExecCredential type.
        spec: dict[str, Any] = {"interactive": self._interactive}
        if settings.cluster is not None:
            spec["cluster"] = settings.cluster
        info = {"apiVersion": settings.api_version, "kind": "ExecCredential", "spec": spec}
        environ = os.environ | {pair.name: pair.value for pair in settings.env or ()}
        environ["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        try:
            done = subprocess.run(  # noqa: S603 -- what the kubeconfig names
                [command, *(settings.args or ())],
                stdin=None if self._interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if self._interactive else subprocess.PIPE,
                env=environ,
                timeout=_PLUGIN_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as problem:
            raise self._fault(f"did not answer within {_PLUGIN_TIMEOUT_S:g} s") from problem
        except (OSError, ValueError) as problem:
            raise self._fault(f"cannot be run: {problem}", settings.install_hint or "") from problem
        if done.returncode != 0:
            output = (done.stderr or b"").decode("utf-8", "replace").strip()
            raise self._fault(f"ended with {done.returncode}: {output[-500:]}")
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

    def _expiry(self, status: _CredentialStatus) -> datetime:
        if status.expirationTimestamp is None:
            return _NEVER
        try:
            return parse_rfc3339(status.expirationTimestamp)
        except ValueError as problem:
            raise self._fault(
                f"printed an expirationTimestamp that is none: {problem}"
            ) from problem

    def _load(self, certificate: tuple[str, str]) -> None:
        if self._context is None or certificate == self._certificate:
            return
        try:
            load_identity(self._context, certificate[0].encode(), certificate[1].encode())
        except OSError as problem:
            raise self._fault(f"printed a client certificate that fails: {problem}") from problem
        self._certificate = certificate
        self.identity += 1

    def _fault(self, problem: str, hint: str = "") -> CredentialFault:
        text = f"credential plugin {self._settings.command!r} {problem}"
        return CredentialFault(f"{text}. {hint}" if hint else text)
