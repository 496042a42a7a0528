"""Laws of the demo's user: a claim counts when it can be used, and is not waited for forever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from lightkube import AsyncClient, KubeConfig
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from lean_sandbox.client import SandboxClaim
from lean_sandbox.demo import story
from lean_sandbox.demo.story import NAMESPACE, DemoUser, NotReachedError
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.files import CLAIM
from tests.support.names import SAFE_TO_EVICT, WARM_POOL

Json = dict[str, Any]

MERGE = PatchType.MERGE
_READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}


@asynccontextmanager
async def watching(folder: Path) -> AsyncIterator[DemoUser]:
    """Give a user who watches a server on which a claim and a free Pod are."""
    metadata = {"name": "m", "labels": {WARM_POOL: "p"}, "annotations": {SAFE_TO_EVICT: "true"}}
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    pod = cast("Pod", Pod.from_dict({"metadata": metadata, "spec": spec}))
    async with ControlPlane(LocalSettings()) as plane:
        config = KubeConfig.from_file(plane.kubeconfig(folder / "admin.kubeconfig"))
        async with (
            AsyncClient(config=config, namespace=NAMESPACE) as client,
            anyio.create_task_group() as group,
        ):
            user = DemoUser(client)
            group.start_soon(user.follow, SandboxClaim, user.claims)
            group.start_soon(user.follow, Pod, user.pods)
            await client.create(pod)
            await user.create(SandboxClaim, CLAIM, "c")
            await user.until("the Pod", lambda: "m" in user.pods)
            yield user
            group.cancel_scope.cancel()


async def bind(user: DemoUser) -> None:
    """Say that the claim is Ready with the Sandbox of the Pod, and wait until the user sees it."""
    ready = _READY | {"lastTransitionTime": "2026-01-02T03:04:05Z"}
    status = {"status": {"sandbox": {"name": "m"}, "conditions": [ready]}}
    await user.client.patch(SandboxClaim.Status, "c", status, patch_type=MERGE)
    await user.until("Ready", lambda: user.has_ready("c"))


async def take(user: DemoUser, what: str, key: str) -> None:
    """Take a mark from the Pod, and wait until the user sees it."""
    await user.client.patch(Pod, "m", {"metadata": {what: {key: None}}}, patch_type=MERGE)

    def is_gone() -> bool:
        metadata = user.pods["m"].metadata
        return metadata is not None and key not in (getattr(metadata, what) or {})

    await user.until(f"m without {key}", is_gone)


@pytest.mark.parametrize("order", list(permutations(("ready", "labels", "annotations"))))
async def test_a_claim_can_be_used_once_it_is_ready_and_its_pod_has_lost_both_marks(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    """Whichever of the three comes last, and no sooner."""
    marks = {"labels": WARM_POOL, "annotations": SAFE_TO_EVICT}
    async with watching(tmp_path) as user:
        for step in order:
            assert not user.can_use("c")
            await (bind(user) if step == "ready" else take(user, step, marks[step]))
        assert user.can_use("c")


async def test_a_wait_for_a_claim_that_never_can_be_used_ends_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo then ends with what was not reached."""
    async with watching(tmp_path) as user:
        await bind(user)
        monkeypatch.setattr(story, "_PATIENCE_S", 0.05)
        with pytest.raises(NotReachedError, match="a Pod of its own for c was not reached"):
            await user.until("a Pod of its own for c", lambda: user.can_use("c"))
