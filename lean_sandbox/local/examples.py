"""Manifests to begin with: one Sandbox; a template with a warm pool; a claim on that pool."""

from __future__ import annotations

from typing import Final

_CONTAINERS: Final = """\
      containers:
      - name: main
        image: python:3.12-slim
        command: ["sleep", "infinity"]
      terminationGracePeriodSeconds: 1
"""

SANDBOX: Final = f"""\
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata:
  name: code-interpreter
spec:
  podTemplate:
    spec:
{_CONTAINERS}"""
TEMPLATE: Final = f"""\
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata:
  name: python
spec:
  podTemplate:
    spec:
{_CONTAINERS}"""
WARM_POOL: Final = """\
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata:
  name: python
spec:
  replicas: 5
  sandboxTemplateRef:
    name: python
"""
CLAIM: Final = """\
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxClaim
metadata:
  name: mine
spec:
  warmPoolRef:
    name: python
"""

EXAMPLES: Final = {"sandbox": SANDBOX, "pool": f"{TEMPLATE}---\n{WARM_POOL}", "claim": CLAIM}
"""What ``lean-sandbox local example`` prints, by name."""
