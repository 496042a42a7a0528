"""What a claim may ask for beyond its template: metadata, variables, volume claims.

Labels decide which policies select a Pod, so claims may use allowed domains only; annotations are
free except for the domains of Kubernetes and of the sandboxes themselves.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from lean_sandbox.model import names
from lean_sandbox.model.claim import ClaimFacts, EnvVar
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.model.pod import merge_patch_of
from lean_sandbox.model.sandbox import PodTemplateMetadata, VolumeClaimTemplate, metadata_fault
from lean_sandbox.model.template import TemplateView

Json = dict[str, Any]

_RESTRICTED_DOMAINS: Final = ("kubernetes.io", "k8s.io", names.CORE_GROUP)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)
_MAX_NAME: Final = 63


def validate_additional_metadata(
    asked: PodTemplateMetadata, allowed_domains: Collection[str], *, refusal: str = ""
) -> None:
    """Raise ClaimError (INVALID_METADATA) for the first fault of what is asked, labels first.

    ``refusal`` is the fault of all of it together, if it is not even kept.
    """
    if refusal:
        raise ClaimError(ClaimFault.INVALID_METADATA, f"invalid additionalPodMetadata: {refusal}")
    labels = asked.labels or {}
    annotations = asked.annotations or {}
    found = [("label", key, _label_fault(key, labels[key], allowed_domains)) for key in labels]
    found += [("annotation", key, _annotation_fault(key)) for key in annotations]
    for what, key, fault in found:
        if fault:
            raise ClaimError(
                ClaimFault.INVALID_METADATA,
                f'invalid additionalPodMetadata: failed to validate {what} "{key}": {fault}',
            )


def desired_pod_metadata(
    template: TemplateView | None,
    claim: ClaimFacts,
    *,
    ref_hash: str,
    current: PodTemplateMetadata | None = None,
) -> PodTemplateMetadata:
    """Return ``podTemplate.metadata`` for the Sandbox of ``claim``.

    The base is the template's, or, where none could be resolved, the Sandbox's ``current`` metadata
    without a safe-to-evict of ``true``, the pool's own mark.

    Raises ClaimError: OTHER, when the claim asks for another value of a key of the base;
    INVALID_METADATA, when the two together are more than a Pod is given.
    """
    base = template.pod_metadata if template is not None else current or PodTemplateMetadata()
    labels = dict(base.labels or {})
    annotations = dict(base.annotations or {})
    if template is None and annotations.get(names.SAFE_TO_EVICT_ANNOTATION) == "true":
        del annotations[names.SAFE_TO_EVICT_ANNOTATION]
    labels[names.CLAIM_UID_LABEL] = claim.uid
    if ref_hash:
        labels[names.TEMPLATE_REF_HASH_LABEL] = ref_hash
    labels.pop(names.CREATED_BY_LABEL, None)
    if claim.created_by:
        labels[names.CREATED_BY_LABEL] = claim.created_by
    _merge(labels, claim.additional.labels, "label")
    _merge(annotations, claim.additional.annotations, "annotation")
    desired = PodTemplateMetadata(labels, annotations or None)
    asks = bool(claim.additional.labels or claim.additional.annotations)
    if asks and (fault := metadata_fault(desired, "spec.podTemplate.metadata")):
        raise ClaimError(
            ClaimFault.INVALID_METADATA,
            f"invalid additionalPodMetadata: together with that of the template, {fault}",
        )
    return desired


def bound_sync_patch(
    desired: PodTemplateMetadata,
    current: PodTemplateMetadata,
    *,
    claim: ClaimFacts,
    labels: Mapping[str, str] | None,
    ref_hash: str,
) -> dict[str, Any] | None:
    """Return the merge patch that brings a bound Sandbox up to date, None when it is.

    ``current`` is the metadata of its Pod template, ``labels`` are the Sandbox's own.
    """
    wanted = {
        names.TEMPLATE_REF_HASH_LABEL: ref_hash,
        names.CREATED_BY_LABEL: claim.created_by or None,
    }
    own = {key: value for key, value in wanted.items() if (labels or {}).get(key) != value}
    patch: dict[str, Any] = {"metadata": {"labels": own}} if own else {}
    if changes := merge_patch_of(current, desired):
        patch["spec"] = {"podTemplate": {"metadata": changes}}
    return patch or None


def _merge(base: dict[str, str], wanted: Mapping[str, str] | None, what: str) -> None:
    for key, value in (wanted or {}).items():
        if base.setdefault(key, value) != value:
            raise ClaimError(
                ClaimFault.OTHER,
                f'metadata override conflict: {what} "{key}" is defined in template with '
                "another value than the claim requests",
            )


def _label_fault(key: str, value: str, allowed_domains: Collection[str]) -> str:
    if detail := _key_fault(key):
        return f'invalid label key: "{key}": {detail}'
    if key.lower() == names.ROUTER_LABEL and value.lower() == names.ROUTER_VALUE:
        return (
            f'restricted system label value: "{key}"="{value}" '
            "is not allowed in AdditionalPodMetadata"
        )
    prefix, slash, _ = key.partition("/")
    if not slash:
        return (
            f'label "{key}" must have a domain prefix '
            f"(e.g. '{names.DEFAULT_LABEL_DOMAIN}/my-label') "
            "to prevent opting into unintended policy domains"
        )
    if not _is_within(prefix, allowed_domains):
        return f'label domain "{prefix}" is not in the allowlist'
    if value and (len(value) > _MAX_NAME or not _NAME.fullmatch(value)):
        return (
            f'invalid label value: "{value}" does not match allowed pattern: at most {_MAX_NAME} '
            "letters, digits, '-', '_' or '.', with a letter or digit at both ends"
        )
    return ""


def _annotation_fault(key: str) -> str:
    if detail := _key_fault(key):
        return f'invalid annotation key: "{key}": {detail}'
    prefix, slash, _ = key.partition("/")
    is_restricted = bool(slash) and _is_within(prefix, _RESTRICTED_DOMAINS)
    if is_restricted and key != names.SAFE_TO_EVICT_ANNOTATION:
        return f'restricted system domain: "{key}" is not allowed in AdditionalPodMetadata'
    return ""


def _key_fault(key: str) -> str:
    prefix, slash, name = key.partition("/")
    if not slash:
        name = key
    elif not names.is_object_name(prefix):
        most = names.MAX_NAME_CHARACTERS
        return f"prefix part must be a DNS subdomain of at most {most} characters"
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        return (
            f"name part must consist of at most {_MAX_NAME} letters, digits, '-', '_' or '.', "
            "with a letter or digit at both ends"
        )
    return ""


def _is_within(domain: str, domains: Collection[str]) -> bool:
    return any(domain == known or domain.endswith(f".{known}") for known in domains)


def inject_env(pod_spec: Json, env: Sequence[EnvVar], policy: str) -> Json:
    """Return ``pod_spec`` with the variables of a claim; ``pod_spec`` itself is not changed.

    Raises ClaimError: ENV_VARS_REJECTED when the template's policy forbids it; OTHER for an unknown
    container or a variable that the policy does not let the claim replace.
    """
    if policy not in (names.INJECTION_ALLOWED, names.INJECTION_OVERRIDES):
        raise _env_rejected("environment variable injection is not allowed by the template policy")
    lists = {key: pod_spec[key] for key in ("containers", "initContainers") if pod_spec.get(key)}
    # The first container comes first, whichever lists there are.
    by_container: dict[str | None, list[EnvVar]] = {
        container.get("name"): [] for listed in lists.values() for container in listed
    }
    first = next(iter(by_container), None)
    # Those of a named container come before the others.
    for entry in sorted(env, key=lambda one: not one.containerName):
        target = entry.containerName or first
        if target not in by_container:
            raise ClaimError(
                ClaimFault.OTHER,
                f'target container "{entry.containerName}" not found in template '
                f'for environment variable "{entry.name}"',
            )
        by_container[target].append(entry)
    changed = {
        key: [_with(container, by_container[container.get("name")], policy) for container in listed]
        for key, listed in lists.items()
    }
    return {**pod_spec, **changed}


def _with(container: Json, env: Sequence[EnvVar], policy: str) -> Json:
    if not env:
        return container
    if policy == names.INJECTION_ALLOWED and container.get("envFrom"):
        raise _env_rejected(
            f'container "{container.get("name", "")}" uses EnvFrom sources; '
            "Allowed policy cannot safely prevent overriding EnvFrom-provided variables"
        )
    variables: list[Json] = list(container.get("env") or ())
    places = {variable.get("name"): index for index, variable in enumerate(variables)}
    for entry in env:
        variable = {"name": entry.name, "value": entry.value}
        place = places.get(entry.name)
        if place is None:
            places[entry.name] = len(variables)
            variables.append(variable)
        elif policy == names.INJECTION_OVERRIDES:
            variables[place] = variable
        else:
            raise ClaimError(
                ClaimFault.OTHER,
                "environment variable override is not allowed by the template policy "
                f'for variable "{entry.name}"',
            )
    return {**container, "env": variables}


def _env_rejected(detail: str) -> ClaimError:
    return ClaimError(
        ClaimFault.ENV_VARS_REJECTED, f"environment variable injection rejected: {detail}"
    )


def merge_claim_templates(
    template: tuple[VolumeClaimTemplate, ...],
    claim: Sequence[VolumeClaimTemplate],
    policy: str,
    volumes: Collection[str | None] = (),
) -> tuple[VolumeClaimTemplate, ...]:
    """Return the volumeClaimTemplates of the Sandbox; the template's order, then the claim's.

    ``volumes`` are the plain volumes of the template's Pod: an entry of that name replaces one.

    Raises ClaimError: CLAIM_TEMPLATES for an invalid list or what the policy forbids, OTHER for an
    unknown policy.
    """
    fault = _list_fault(template)
    if not claim:
        if fault:
            raise ClaimError(
                ClaimFault.CLAIM_TEMPLATES,
                f"invalid volume claim templates in template: {fault}",
            )
        return template
    if fault:
        raise _merge_failed(f"template: {fault}")
    if fault := _list_fault(claim):
        raise _merge_failed(f"claim: {fault}")
    if policy in ("", names.INJECTION_DISALLOWED):
        raise _merge_failed("volume claim templates are disallowed by the template")
    if policy not in (names.INJECTION_ALLOWED, names.INJECTION_OVERRIDES):
        raise _merge_failed(f'unknown volume claim templates policy "{policy}"', ClaimFault.OTHER)
    merged = {entry.name: entry for entry in template}
    for entry in claim:
        if policy == names.INJECTION_ALLOWED and entry.name in merged:
            raise _merge_failed(
                "overriding volume claim templates is forbidden by the template: "
                f'cannot override template volume "{entry.name}"'
            )
        if policy == names.INJECTION_ALLOWED and entry.name in volumes:
            raise _merge_failed(
                f'spec.volumeClaimTemplates: "{entry.name}" is a volume of the template\'s Pod, '
                "which the template does not let claims replace: choose another name"
            )
        # A replaced entry keeps its place.
        merged[entry.name] = entry
    return tuple(merged.values())


def _list_fault(entries: Iterable[VolumeClaimTemplate]) -> str:
    seen = set()
    for index, entry in enumerate(entries):
        if not entry.name:
            return f"invalid volume claim templates: name at index {index} is empty"
        if entry.name in seen:
            return f'invalid volume claim templates: duplicate name "{entry.name}"'
        seen.add(entry.name)
    return ""


def _merge_failed(detail: str, fault: ClaimFault = ClaimFault.CLAIM_TEMPLATES) -> ClaimError:
    return ClaimError(fault, f"failed to merge volume claim templates: {detail}")
