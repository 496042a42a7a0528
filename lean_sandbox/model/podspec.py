"""The spec of a Pod as far as decisions read it; everything else is passed on as it is."""

from __future__ import annotations

import msgspec


class Named(msgspec.Struct, frozen=True, gc=False):
    """A volume, or a variable of a container."""

    name: str | None = None


class ContainerPort(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``ports`` of a container."""

    name: str | None = None
    containerPort: int | None = None
    protocol: str | None = None


class Container(msgspec.Struct, frozen=True, gc=False):
    """A container, or one that runs before the others."""

    name: str | None = None
    env: tuple[Named, ...] | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restartPolicy: str | None = None


class PodSpecShape(msgspec.Struct, frozen=True, gc=False):
    """What is read of the spec of a Pod that is to be made."""

    containers: tuple[Container, ...] | None = None
    initContainers: tuple[Container, ...] | None = None
    volumes: tuple[Named, ...] | None = None


_decoder = msgspec.json.Decoder(PodSpecShape | None)


def shape_of(pod_spec: msgspec.Raw) -> PodSpecShape:
    """Return what is read of the spec of a Pod.

    Raises msgspec.ValidationError: the part that is read is not shaped as core/v1 says.
    """
    return _decoder.decode(pod_spec) or PodSpecShape()
