"""Stands in for the router and for what listens in Sandboxes: no container runs in a simulated Pod.

A Sandbox is a folder of this machine, in which its commands run and its files lie. It answers only
while its Pod is Ready, and only under the names by which the router finds it.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.client.cluster import Cluster
from tests.support.patience import PATIENCE_S
from tests.support.stored import is_ready

__all__ = ["StandIn", "standing_in"]

Json = dict[str, Any]


class StandIn:
    """Where the Sandboxes are, and where they answer.

    Attributes:
        url: that of the router.
        folder: what holds the folders of the Sandboxes.
        tmp: the path by which a command finds the folder of its Sandbox, whichever that is.

    """

    def __init__(self, cluster: Cluster, folder: Path, url: str) -> None:
        self.url = url
        self.folder = folder
        self.tmp = folder / "tmp"
        self._cluster = cluster
        self._turn = threading.Lock()

    def pod(self, namespace: str, name: str) -> Json | None:
        """Return the Pod of a Sandbox, None unless it is Ready."""
        pod = self._cluster.find("pods", namespace, name)
        return pod if pod is not None and is_ready(pod) else None

    def home(self, pod: Json) -> Path:
        """Return the folder of a Sandbox."""
        folder = self.folder / str(pod["metadata"]["uid"])
        folder.mkdir(exist_ok=True)
        return folder

    def run(self, pod: Json, command: str) -> Json:
        """Run a command with the variables of a Sandbox, and return what it answers."""
        variables = pod["spec"]["containers"][0].get("env", [])
        home = self.home(pod)
        with self._turn:
            self.tmp.unlink(missing_ok=True)
            self.tmp.symlink_to(home)
            done = subprocess.run(  # noqa: S602 -- the tests' own commands
                command,
                cwd=home,
                env={"PATH": os.environ["PATH"]} | {one["name"]: one["value"] for one in variables},
                shell=True,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
        return {"stdout": done.stdout, "stderr": done.stderr, "exit_code": done.returncode}


@contextmanager
def standing_in(cluster: Cluster, folder: Path) -> Iterator[StandIn]:
    """Answer for the Sandboxes of a cluster; what they hold is kept in ``folder``."""

    class Handler(_Handler):
        """Has the stand-in of this server."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.standin = StandIn(cluster, folder, f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, name="stand-in")
    thread.start()
    try:
        yield Handler.standin
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """The HTTP API of the reference's Python runtime, behind the headers of its router."""

    standin: StandIn

    def do_GET(self) -> None:
        pod = self._pod()
        if pod is None:
            return
        verb, _, rest = self.path.strip("/").partition("/")
        path = self.standin.home(pod) / unquote(rest).lstrip("/")
        if verb == "exists":
            self._answer({"path": rest, "exists": path.exists()})
        elif not path.exists():
            self._answer({"message": "not found"}, 404)
        elif verb == "list":
            self._answer([_entry(one) for one in path.iterdir()])
        elif verb == "download":
            self._send(path.read_bytes(), "application/octet-stream")
        else:
            self._answer({"status": "ok"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        pod = self._pod()
        if pod is None:
            return
        if self.path == "/execute":
            self._answer(self.standin.run(pod, json.loads(body)["command"]))
        elif self.path == "/upload":
            name, content = _uploaded(self.headers["Content-Type"], body)
            path = self.standin.home(pod) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            self._answer({"message": "uploaded"})
        else:
            self._answer({"message": "not found"}, 404)

    def _pod(self) -> Json | None:
        """Return the Pod that is asked, or answer as the router does without one."""
        headers = self.headers
        pod = self.standin.pod(headers["X-Sandbox-Namespace"], headers["X-Sandbox-ID"])
        if pod is None:
            self._answer({"detail": "Could not connect to the backend sandbox"}, 502)
        return pod

    def _answer(self, body: Any, status: int = 200) -> None:
        self._send(json.dumps(body).encode(), "application/json", status)

    def _send(self, content: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing of a request."""


def _entry(path: Path) -> Json:
    state = path.stat()
    kind = "directory" if path.is_dir() else "file"
    return {"name": path.name, "size": state.st_size, "type": kind, "mod_time": state.st_mtime}


def _uploaded(kind: str, body: bytes) -> tuple[str, bytes]:
    """Return the name and the content of the one file of a form."""
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    (part,) = BytesParser(policy=HTTP).parsebytes(head + body).iter_parts()
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return str(part.get_filename()), content
