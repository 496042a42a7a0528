"""The page at ``/`` of the metrics listener: a file of this package, which reads ``/metrics``.

It shows nothing that ``/metrics`` does not say to whoever can read the page.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from pathlib import Path
from typing import Final

from lean_sandbox.http.server import Answer, Request

FILE: Final = Path(__file__).with_name("page.html")
_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


async def page(_request: Request) -> Answer:
    """Answer with the page, read from its file: who never asks for it pays nothing."""
    text = FILE.read_text(encoding="utf-8")
    policy = (("Content-Security-Policy", content_policy(text)), ("Referrer-Policy", "no-referrer"))
    return Answer(200, text.encode(), "text/html; charset=utf-8", policy)


def content_policy(text: str) -> str:
    """Return what lets a browser run and apply what stands in the page, and nothing else."""
    allowed = {
        name: f"'sha256-{b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"
        for name, inline in _INLINE.findall(text)
    }
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']};"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
