"""Shows each object of a kind, and each change of it, by the project's own list and watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from filters import EVERYTHING, LabelSelector, resource_version
from lean_sandbox.clock import Clock
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.resources import PartialObject, Resource
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Delta, Entry, Kind, Representation, identity
from lean_sandbox.watch.reflector import Reflector


class Followed(Protocol):
    """What an object needs to be followed."""

    @property
    def metadata(self) -> ObjectMeta:
        """Return the object's metadata."""


O = TypeVar("O", bound=Followed)  # noqa: E741


class _Shown(Entry, gc=False, frozen=True):
    item: Any = None


def follow(
    client: Client,
    clock: Clock,
    resource: Resource,
    type_: type[O],
    *,
    uniform: Callable[[], float],
    on_change: Callable[[O], None],
    on_gone: Callable[[O], None] | None = None,
    namespace: str | None = None,
    label_selector: LabelSelector = EVERYTHING,
) -> Reflector[Any]:
    """Return what follows a kind, across all namespaces unless one is named, once it is run.

    ``on_change`` is called with each object seen, ``on_gone`` with the last state seen of each one
    that is no more; both must not block. Of a PartialObject only the metadata is requested.
    """
    is_partial = type_ is PartialObject
    make: Any = type_

    def build(row: ObjectMeta, item: Any, old: _Shown | None) -> _Shown:
        if item is None:
            # Metadata alone: what was asked for, or all that can be read of an odd object.
            item = make(row) if is_partial or old is None else old.item
        return _Shown(*identity(row, old), item=item)

    def tell(delta: Delta[_Shown]) -> None:
        old = delta.old
        new = delta.new
        if on_gone is not None and old is not None and (new is None or new.uid != old.uid):
            on_gone(old.item)
        if new is not None:
            on_change(new.item)

    kind = Kind(
        resource=resource,
        item_type=type_,
        predicate=resource_version(),
        build=build,
        watch_as=Representation.METADATA if is_partial else Representation.FULL,
        label_selector=label_selector,
    )
    cache = Cache(kind, monotonic=clock.monotonic)
    cache.handlers.append(tell)
    return Reflector(client, cache, clock=clock, uniform=uniform, namespace=namespace)
