"""What tests need of a server beside its API, told apart for the embedded and the real one."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from lean_sandbox.local.controlplane import ControlPlane
from tests.conformance.api import Api
from tests.controlplane.server import RealServer

__all__ = ["Embedded", "Real", "Server"]


class Server(Protocol):
    """A server under test."""

    is_real: bool

    def api(self) -> Api:
        """Return an administrator's API."""

    def kubeconfig(self, path: Path) -> Path:
        """Write an administrator's kubeconfig."""

    def forget(self) -> None:
        """Drop all versions but the newest."""


class Embedded:
    """The embedded control plane."""

    is_real = False

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def api(self) -> Api:
        """Return an administrator's API."""
        plane = self._plane
        ca = plane.ca_pem.decode() if plane.ca_pem else None
        return Api(plane.url, plane.create_token(), ca=ca)

    def kubeconfig(self, path: Path) -> Path:
        """Write an administrator's kubeconfig."""
        return self._plane.kubeconfig(path)

    def forget(self) -> None:
        """Drop all versions but the newest."""
        self._plane.compact()


class Real:
    """kube-apiserver."""

    is_real = True

    def __init__(self, running: RealServer) -> None:
        self._running = running

    def api(self) -> Api:
        """Return an administrator's API."""
        running = self._running
        return Api(running.url, running.token, ca=running.authority.read_text())

    def kubeconfig(self, path: Path) -> Path:
        """Write an administrator's kubeconfig."""
        return self._running.kubeconfig(path, self._running.token)

    def forget(self) -> None:
        """Drop all versions but the newest."""
        self._running.compact()
