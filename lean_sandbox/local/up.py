"""``lean-sandbox local up``: a whole cluster in one process, until Ctrl-C.

Starts the embedded control plane, simulated Nodes with their kubelet and, if one is handed in, the controller;
writes a kubeconfig, says what to type next, waits for SIGINT or SIGTERM, saves the state.
"""

from __future__ import annotations

import random
import shlex
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from lean_sandbox.api.client import Client
from lean_sandbox.api.config import load
from lean_sandbox.api.transport import Transport
from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.kubeconfig import kubeconfig, write_private
from lean_sandbox.local.kubelet import Kubelet, KubeletSettings
from lean_sandbox.local.serversettings import LocalSettings

__all__ = ["StartController", "UpSettings", "up"]

# Runs the controller against the kubeconfig until it is cancelled.
StartController = Callable[[Path], Awaitable[None]]
Say = Callable[[str], None]
