"""A real control plane in one folder, on loopback: started, furnished, and gone at the end."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.controlplane.binaries import Programs
from tests.kube import certificates
from tests.support.patience import PATIENCE_S

__all__ = ["ADMIN", "KUBELET", "OBSERVER", "RealServer", "StartError", "started"]

Json = dict[str, Any]

ADMIN = "admin"
KUBELET = "kubelet"
OBSERVER = "observer"
_MANAGER = "system:kube-controller-manager"
_SCHEDULER = "system:kube-scheduler"
_TOKENS = {
    ADMIN: "admin-of-a-test",
    KUBELET: "kubelet-of-a-test",
    # A test's own look at things, told apart from those it tests in the audit log.
    OBSERVER: "observer-of-a-test",
    _MANAGER: "manager-of-a-test",
    _SCHEDULER: "scheduler-of-a-test",
}
_MASTERS = "system:masters"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# What tests need of it: roles, owners, namespaces, accounts, nodes without their first taint,
# volumes.
_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)
_AUDIT_POLICY: Json = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": ["system:apiserver", _MANAGER, _SCHEDULER]},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata"},
    ],
}
_STORAGE: Json = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "standard",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "kubernetes.io/host-path",
}


class StartError(Exception):
    """The control plane did not start; the message ends with what its program said last."""


@dataclass(slots=True)
class RealServer:
    """A running control plane.

    Attributes:
        url: where kube-apiserver listens.
        authority: the PEM file of the authority that signed its certificate.
        audit_log: one JSON line for each request, watches at their end.
        folder: logs, keys and data; removed at the end.

    """

    url: str
    authority: Path
    audit_log: Path
    folder: Path
    _store: str
    _starts: dict[str, Callable[[], None]] = field(default_factory=dict)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _guards: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def token(self) -> str:
        """Return the token of an administrator."""
        return _TOKENS[ADMIN]

    def token_of(self, user: str) -> str:
        """Return the token of one of the users with all rights."""
        return _TOKENS[user]

    def kubeconfig(self, path: Path, token: str) -> Path:
        """Write a kubeconfig with a token and return its path."""
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "real", "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
        }
        path.write_text(json.dumps(content))
        return path

    def ask(self, method: str, path: str, body: Json | None = None, user: str = ADMIN) -> Json:
        """Make one blocking request, for where there is no event loop; patches are merge patches.

        Raises urllib.error.HTTPError for a refusal, OSError without an answer.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(  # noqa: S310 - an address of our own
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.token_of(user)}",
                "Content-Type": kind,
                "Connection": "close",
            },
        )
        context = ssl.create_default_context(cafile=str(self.authority))
        with urllib.request.urlopen(request, context=context, timeout=PATIENCE_S) as answer:  # noqa: S310
            text = answer.read()
        return dict(json.loads(text)) if text.startswith(b"{") else {"text": text.decode()}

    def compact(self) -> None:
        """Let etcd drop all versions but the newest. Raises OSError when it does not answer."""

        def ask(what: str, body: Json) -> Json:
            url = f"{self._store}/v3/kv/{what}"
            sent = json.dumps(body).encode()
            with urllib.request.urlopen(url, sent, timeout=PATIENCE_S) as answer:  # noqa: S310
                return dict(json.loads(answer.read()))

        found = ask("range", {"key": base64.b64encode(b"/").decode()})
        ask("compaction", {"revision": found["header"]["revision"], "physical": True})

    def define(self, definitions: Iterable[Mapping[str, Any]]) -> None:
        """Create definitions and wait until their kinds are served."""
        names = []
        for definition in definitions:
            self.ask("POST", _DEFINITIONS, dict(definition))
            names.append(definition["metadata"]["name"])
        for name in names:
            self._until(f"{name} to be served", lambda name=name: self._is_served(name))

    def _is_served(self, name: str) -> bool:
        definition = self.ask("GET", f"{_DEFINITIONS}/{name}")
        conditions = definition.get("status", {}).get("conditions") or []
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    # ------------------------------------------------------------------ life

    def kill(self, *programs: str) -> None:
        """End programs of the control plane at once: etcd, kube-apiserver and so on."""
        for name in programs:
            process = self._processes.pop(name)
            process.kill()
            process.wait()

    def start(self, *programs: str) -> None:
        """Start programs with what their folder holds, and wait until requests are answered."""
        for name in programs:
            self._starts[name]()
            if name == "kube-apiserver":
                self._until(name, lambda: self.ask("GET", "/readyz"))

    def back_up(self, into: Path) -> None:
        """Copy what is stored; the server is away for some seconds."""
        self.kill("kube-apiserver", "etcd")
        shutil.copytree(self._data, into)
        self.start("etcd", "kube-apiserver")

    def restore(self, copy: Path) -> None:
        """Go back to a copy, versions included, and start everything anew, as etcd asks for."""
        programs = tuple(name for name in self._starts if name in self._processes)
        self.kill(*reversed(programs))
        shutil.rmtree(self._data)
        shutil.copytree(copy, self._data)
        self.start(*programs)

    @property
    def _data(self) -> Path:
        return self.folder / "etcd"

    def _until(self, what: str, check: Any) -> None:
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise StartError(f"{name} ended while waiting for {what}:\n{self._tail(name)}")
            with contextlib.suppress(OSError):
                if check():
                    return
            time.sleep(0.1)
        raise StartError(f"waited in vain for {what}:\n{self._tail('kube-apiserver')}")

    def _tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def _spawn(self, program: Path, name: str, **flags: str) -> None:
        arguments = [f"--{key.replace('_', '-')}={value}" for key, value in flags.items()]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - programs that were looked for by name
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the tests: they end the control plane themselves.
                start_new_session=True,
            )
        self._processes[name] = process
        # Its standard input ends when this process does, however that happens.
        script = 'cat >/dev/null; kill -9 "$0" 2>/dev/null'
        guard = subprocess.Popen(  # noqa: S603 - fixed arguments
            ["sh", "-c", script, str(process.pid)],  # noqa: S607 - wherever the machine has it
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._guards.append(guard)

    def _stop(self) -> None:
        # Not by SIGTERM: kube-apiserver would wait a minute for its watches to end.
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        for guard in self._guards:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()


def _free_ports(count: int) -> list[int]:
    """Return free ports, all different: each socket is open until the last one has its own."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextmanager
def started(
    programs: Programs, folder: Path, definitions: Iterable[Mapping[str, Any]]
) -> Iterator[RealServer]:
    """Run a control plane whose files are in ``folder``; ``definitions`` are served from the start.

    RBAC is on, every request but those of the control plane itself is audited. kube-scheduler runs
    only once :meth:`RealServer.start` is asked for it: simulated Nodes bring a scheduler.

    Raises:
        StartError: it did not come up.

    """
    client_port, peer_port, port, manager_port, scheduler_port = _free_ports(5)
    keys = certificates.make(folder)
    url = f"https://127.0.0.1:{port}"
    store = f"http://127.0.0.1:{client_port}"
    server = RealServer(url, keys.authority, folder / "audit.log", folder, store)
    try:
        server._starts = {
            "etcd": lambda: _start_store(server, programs, peer_port),
            "kube-apiserver": lambda: _start_server(server, programs, port),
            "kube-controller-manager": lambda: _start_manager(server, programs, manager_port),
            "kube-scheduler": lambda: _start_component(
                server, programs.scheduler, _SCHEDULER, scheduler_port
            ),
        }
        server.start("etcd", "kube-apiserver")
        server.ask("POST", "/apis/storage.k8s.io/v1/storageclasses", _STORAGE)
        # Before the manager starts: its garbage collector looks for new kinds every 30 s only.
        server.define(definitions)
        server.start("kube-controller-manager")
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        server._until("kube-controller-manager", lambda: server.ask("GET", account))
        yield server
    finally:
        server._stop()


def _start_store(server: RealServer, programs: Programs, peer_port: int) -> None:
    url = server._store
    peer = f"http://127.0.0.1:{peer_port}"
    server._spawn(
        programs.etcd,
        "etcd",
        data_dir=str(server._data),
        listen_client_urls=url,
        advertise_client_urls=url,
        listen_peer_urls=peer,
        initial_advertise_peer_urls=peer,
        initial_cluster=f"default={peer}",
        unsafe_no_fsync="true",
    )


def _start_server(server: RealServer, programs: Programs, port: int) -> None:
    folder = server.folder
    policy = folder / "audit.json"
    tokens = folder / "tokens.csv"
    policy.write_text(json.dumps(_AUDIT_POLICY))
    tokens.write_text(
        "".join(f'{token},{user},{user},"{_MASTERS}"\n' for user, token in _TOKENS.items())
    )
    server._spawn(
        programs.apiserver,
        "kube-apiserver",
        etcd_servers=server._store,
        secure_port=str(port),
        bind_address="127.0.0.1",
        advertise_address="127.0.0.1",
        # Nobody reaches the Service of the API from outside: there is no network to it.
        endpoint_reconciler_type="none",
        tls_cert_file=str(folder / "server.crt"),
        tls_private_key_file=str(folder / "server.key"),
        client_ca_file=str(server.authority),
        token_auth_file=str(tokens),
        service_account_issuer="https://kubernetes.default.svc",
        service_account_key_file=str(folder / "server.crt"),
        service_account_signing_key_file=str(folder / "server.key"),
        service_cluster_ip_range="10.0.0.0/16",
        authorization_mode="RBAC",
        # As those who install clusters set it; without it no container is privileged.
        allow_privileged="true",
        feature_gates=_gates(programs.apiserver),
        audit_policy_file=str(policy),
        audit_log_path=str(server.audit_log),
    )


def _gates(apiserver: Path) -> str:
    """Return the feature gates that the tests want, as far as this version has them."""
    done = subprocess.run([apiserver, "--help"], capture_output=True, text=True, check=True)  # noqa: S603
    return "ShardedListAndWatch=true" if "ShardedListAndWatch" in done.stdout else ""


def _start_component(server: RealServer, program: Path, user: str, port: int, **flags: str) -> None:
    config = server.kubeconfig(server.folder / f"{program.name}.kubeconfig", server.token_of(user))
    server._spawn(
        program,
        program.name,
        kubeconfig=str(config),
        authentication_kubeconfig=str(config),
        authorization_kubeconfig=str(config),
        bind_address="127.0.0.1",
        secure_port=str(port),
        leader_elect="false",
        kube_api_qps="200",
        kube_api_burst="400",
        **flags,
    )


def _start_manager(server: RealServer, programs: Programs, port: int) -> None:
    _start_component(
        server,
        programs.controller_manager,
        _MANAGER,
        port,
        use_service_account_credentials="true",
        service_account_private_key_file=str(server.folder / "server.key"),
        root_ca_file=str(server.authority),
        controllers=",".join(_CONTROLLERS),
        # Nodes are simulated and send no heartbeats.
        node_monitor_grace_period="24h",
        enable_hostpath_provisioner="true",
    )
