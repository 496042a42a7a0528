"""Whole Sandboxes that are handed over by the controller that created them."""

from __future__ import annotations

from lean_sandbox.controllers.sandbox.handed import CreateResponses
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry, sandbox_from_row


def sandbox(name: str = "a", version: str = "5", uid: str = "u") -> Sandbox:
    """Return a Sandbox as the server answers it."""
    meta = ObjectMeta(name=name, namespace="ns", uid=uid, resource_version=version, generation=1)
    return Sandbox(metadata=meta)


def known(item: Sandbox) -> SandboxEntry:
    """Return what the cache holds of a Sandbox."""
    return sandbox_from_row(item.metadata, None)


def test_a_sandbox_is_handed_over_once() -> None:
    """The first who asks gets it, and then it is not kept any longer."""
    handed, item = CreateResponses(), sandbox()
    handed.keep(item)
    assert handed.take(Key("ns", "a"), known(item)) is item
    assert handed.take(Key("ns", "a"), known(item)) is None
    assert len(handed) == 0


def test_one_that_has_changed_since_is_not_handed_over() -> None:
    """A later version, another uid or a Sandbox that is gone: the server has to be asked."""
    for newer in (known(sandbox(version="6")), known(sandbox(uid="v")), None):
        handed = CreateResponses()
        handed.keep(sandbox())
        assert handed.take(Key("ns", "a"), newer) is None
        assert len(handed) == 0


def test_only_so_many_are_kept() -> None:
    """The oldest give way, which costs a GET each and nothing else."""
    handed = CreateResponses(limit=2)
    items = [sandbox(name) for name in "abc"]
    for item in items:
        handed.keep(item)
    assert len(handed) == 2
    taken = [handed.take(Key("ns", item.metadata.name), known(item)) for item in items]
    assert taken == [None, *items[1:]]


def test_a_forgotten_one_is_not_kept() -> None:
    """A Sandbox that is gone before its first pass leaves nothing behind."""
    handed = CreateResponses()
    handed.keep(sandbox())
    handed.forget(Key("ns", "a"))
    handed.forget(Key("ns", "b"))
    assert len(handed) == 0
