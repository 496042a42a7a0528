"""The Sandbox kind, and what is remembered of each one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.podspec import PodSpecShape, shape_of
from lean_sandbox.model.service import ServicePort, derive_ports
from lean_sandbox.model.times import moment_s
from lean_sandbox.model.wire import (
    NOTHING,
    ODD,
    Lenient,
    OrNull,
    Value,
    interned,
    shared,
    shared_map,
)

T = TypeVar("T")


class SandboxStatus(Lenient, frozen=True):
    """``status`` of a Sandbox; empty means absent."""

    conditions: OrNull[tuple[Condition, ...]] = ()
    selector: OrNull[str] = ""
    podIPs: OrNull[tuple[str, ...]] = ()
    nodeName: OrNull[str] = ""
    service: OrNull[str] = ""
    serviceFQDN: OrNull[str] = ""


EMPTY_STATUS = SandboxStatus()


class PodTemplateMetadata(Value, frozen=True):
    """``podTemplate.metadata``: what is propagated to the Pod."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


def visible(metadata: PodTemplateMetadata) -> PodTemplateMetadata:
    """Return the template's metadata that reaches the Pod: no reserved keys, no empty maps."""
    labels = _unreserved(metadata.labels)
    annotations = _unreserved(metadata.annotations)
    annotations.pop(names.TRACE_CONTEXT_ANNOTATION, None)
    return PodTemplateMetadata(labels or None, annotations or None)


def _unreserved(keys: dict[str, str] | None) -> dict[str, str]:
    reserved = (names.CORE_PREFIX, names.EXTENSIONS_PREFIX)
    return {key: value for key, value in (keys or {}).items() if not key.startswith(reserved)}


def shared_metadata(metadata: PodTemplateMetadata) -> PodTemplateMetadata:
    """Return a copy of the metadata with maps that many objects share, without empty ones."""
    if not (metadata.labels or metadata.annotations):
        return _NO_METADATA
    return PodTemplateMetadata(shared_map(metadata.labels), shared_map(metadata.annotations))


_NO_METADATA = PodTemplateMetadata()


class PodTemplate(Lenient, frozen=True):
    """The template of the Pod; its spec stays the bytes the server sent."""

    metadata: OrNull[PodTemplateMetadata] = PodTemplateMetadata()
    spec: msgspec.Raw = NOTHING

    def shape(self) -> PodSpecShape:
        """Return what is read of the spec; raises ValueError if that is not as core/v1 says."""
        return _decoded(shape_of, self.spec)

    def read_spec(self) -> dict[str, Any] | None:
        """Return the spec as plain data; raises ValueError if it is not shaped as core/v1 says."""
        self.shape()
        return _decoded(_read_spec.decode, self.spec)


def _decoded(decode: Callable[[msgspec.Raw], T], spec: msgspec.Raw) -> T:
    try:
        return decode(spec)
    except ODD as error:
        raise ValueError(f"spec.podTemplate.spec: {error}") from None


# The limit of API servers for annotations, all keys and values together.
_MOST_BYTES = 256 * 1024
# Each entry takes some 200 bytes of memory, however short it is in the object.
_MOST_ENTRIES = 1000
# Of the reason why a spec cannot be used.
_LONGEST_REFUSAL = 1024
_read_spec: msgspec.json.Decoder[dict[str, Any] | None] = msgspec.json.Decoder(
    dict[str, Any] | None
)


class VolumeClaimTemplateMetadata(Value, frozen=True):
    """``volumeClaimTemplates[].metadata``."""

    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class VolumeClaimTemplate(Lenient, frozen=True):
    """The template of one PersistentVolumeClaim; its spec stays the bytes the server sent."""

    metadata: OrNull[VolumeClaimTemplateMetadata] = VolumeClaimTemplateMetadata()
    spec: msgspec.Raw = NOTHING

    @property
    def name(self) -> str:
        """The name of the template, which is also the name of the volume."""
        return self.metadata.name


class SandboxSpec(Lenient, frozen=True):
    """``spec`` of a Sandbox; ``service`` has three states, an absent mode or policy its default."""

    podTemplate: OrNull[PodTemplate] = PodTemplate()
    volumeClaimTemplates: tuple[VolumeClaimTemplate, ...] | None = None
    service: bool | None = None
    shutdownTime: str | None = None
    shutdownPolicy: OrNull[str] = names.SHUTDOWN_POLICY_RETAIN
    operatingMode: OrNull[str] = names.OPERATING_MODE_RUNNING


class Sandbox(Lenient, frozen=True):
    """A Sandbox. Its Raw parts keep the message it was decoded from alive: do not store it."""

    metadata: OrNull[ObjectMeta] = ObjectMeta()
    spec: OrNull[SandboxSpec] = SandboxSpec()
    status: OrNull[SandboxStatus] = EMPTY_STATUS


class SandboxView(msgspec.Struct, frozen=True, gc=False):
    """What is kept in memory of the spec of a Sandbox once the full object was seen.

    Maps and ports are shared between Sandboxes of one template: never change them.
    """

    generation: int = 0
    is_suspended: bool = False
    # spec.service: true, false or unset.
    service: bool | None = None
    # Seconds since the epoch.
    shutdown_time: float | None = None
    is_deleted_at_expiry: bool = False
    # Without reserved keys, which never reach the Pod; empty when none can have them.
    template_metadata: PodTemplateMetadata = PodTemplateMetadata()
    # None when they cannot be read.
    ports: tuple[ServicePort, ...] | None = ()
    claim_templates: tuple[str, ...] = ()
    # Why no Pod can be made, if so.
    refusal: str = ""


def view_of(sandbox: Sandbox) -> SandboxView:
    """Return what decisions need of ``sandbox``, detached from the message it came in.

    An unusable Pod spec or ``spec.shutdownTime``, too large metadata and too many ports or volume
    claims are a refusal: no Pod is made, and one that is there still ends when it is to end.
    """
    spec = sandbox.spec
    ports, no_ports = _read(lambda: _ports_of(spec.podTemplate))
    claims, no_claims = _read(lambda: _claim_templates_of(spec))
    end_s, no_end = _read(lambda: moment_s(spec.shutdownTime, "spec.shutdownTime"))
    no_metadata = metadata_fault(spec.podTemplate.metadata, "spec.podTemplate.metadata")
    metadata = PodTemplateMetadata() if no_metadata else visible(spec.podTemplate.metadata)
    return SandboxView(
        generation=sandbox.metadata.generation,
        is_suspended=spec.operatingMode == names.OPERATING_MODE_SUSPENDED,
        service=spec.service,
        shutdown_time=end_s,
        is_deleted_at_expiry=spec.shutdownPolicy == names.SHUTDOWN_POLICY_DELETE,
        template_metadata=shared_metadata(metadata),
        ports=shared(ports),
        claim_templates=claims or (),
        refusal=no_ports or no_claims or no_end or no_metadata,
    )


def _read(read: Callable[[], T]) -> tuple[T | None, str]:
    """Return what a part of a spec says, or the reason why it cannot be used."""
    try:
        return read(), ""
    except ODD as error:
        return None, str(error)[:_LONGEST_REFUSAL]


def _ports_of(template: PodTemplate) -> tuple[ServicePort, ...]:
    ports = derive_ports(template.shape())
    if fault := _too_many(len(ports), "spec.podTemplate.spec.containers[].ports"):
        raise ValueError(fault)
    return ports


def _claim_templates_of(spec: SandboxSpec) -> tuple[str, ...]:
    templates = spec.volumeClaimTemplates or ()
    if fault := _too_many(len(templates), "spec.volumeClaimTemplates"):
        raise ValueError(fault)
    return tuple(interned(names.clipped_name(one.name)) for one in templates)


def metadata_fault(metadata: PodTemplateMetadata, field: str) -> str:
    """Return why no Pod is given these labels and annotations, "" if it can be.

    ``field`` is the path of the metadata in its object. API servers limit the bytes of annotations;
    the limits of labels and of the number of entries are this controller's own.
    """
    for name, values in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        if not values:
            continue
        if fault := _too_many(len(values), f"{field}.{name}"):
            return fault
        size = sum(_bytes_of(key) + _bytes_of(value) for key, value in values.items())
        if size > _MOST_BYTES:
            return (
                f"{field}.{name}: {size} bytes; all {name} of a Pod together may have at most"
                f" {_MOST_BYTES} bytes"
            )
    return ""


def _too_many(number: int, field: str) -> str:
    if number <= _MOST_ENTRIES:
        return ""
    return f"{field}: {number} entries; there may be at most {_MOST_ENTRIES}"


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
