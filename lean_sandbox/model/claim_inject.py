"""What a claim may put into the Pod of its Sandbox: environment variables and volume claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from lean_sandbox.model.claim import EnvVar
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.model.names import INJECTION_ALLOWED, INJECTION_DISALLOWED, INJECTION_OVERRIDES
from lean_sandbox.model.sandbox import VolumeClaimTemplate

Json = dict[str, Any]


def inject_env(pod_spec: Json, env: Sequence[EnvVar], policy: str) -> Json:
    """Return ``pod_spec`` with the variables of a claim; ``pod_spec`` itself is not changed.

    Raises:
        ClaimError: ENV_VARS_REJECTED when the template's policy forbids it; OTHER for an unknown
            container or a variable that the policy does not let the claim replace.

    """
    if not env:
        return pod_spec
    if policy not in (INJECTION_ALLOWED, INJECTION_OVERRIDES):
        raise _env_rejected("environment variable injection is not allowed by the template policy")
    init = pod_spec.get("initContainers") or []
    containers = pod_spec.get("containers") or []
    _check_targets(env, (container.get("name") for container in (*init, *containers)))
    result = dict(pod_spec)
    if init:
        result["initContainers"] = [_with(c, _named(env, c), policy) for c in init]
    if containers:
        unnamed = [entry for entry in env if not entry.containerName]
        result["containers"] = [
            _with(c, [*_named(env, c), *(unnamed if index == 0 else ())], policy)
            for index, c in enumerate(containers)
        ]
    return result


def merge_claim_templates(
    template: Sequence[VolumeClaimTemplate],
    claim: Sequence[VolumeClaimTemplate],
    policy: str,
    volumes: Collection[str] = (),
) -> tuple[VolumeClaimTemplate, ...]:
    """Return the volumeClaimTemplates of the Sandbox; the template's order, then the claim's.

    ``volumes`` are the names of the plain volumes of the template's Pod: an entry of that name
    takes the place of the volume in the Pod.

    Raises:
        ClaimError: CLAIM_TEMPLATES for an invalid list or what the policy forbids, OTHER for a
            policy nobody knows.

    """
    fault = _list_fault(template)
    if not claim:
        if fault:
            raise _claim_templates(f"invalid volume claim templates in template: {fault}")
        return tuple(template)
    if fault:
        raise _merge_failed(f"template: {fault}")
    if fault := _list_fault(claim):
        raise _merge_failed(f"claim: {fault}")
    if policy in ("", INJECTION_DISALLOWED):
        raise _merge_failed("volume claim templates are disallowed by the template")
    if policy not in (INJECTION_ALLOWED, INJECTION_OVERRIDES):
        raise _merge_failed(f'unknown volume claim templates policy "{policy}"', ClaimFault.OTHER)
    merged = {entry.name: entry for entry in template}
    for entry in claim:
        if policy == INJECTION_ALLOWED and entry.name in merged:
            raise _merge_failed(
                "overriding volume claim templates is forbidden by the template: "
                f'cannot override template volume "{entry.name}"'
            )
        if policy == INJECTION_ALLOWED and entry.name in volumes:
            raise _merge_failed(
                f'spec.volumeClaimTemplates: "{entry.name}" is a volume of the template\'s Pod, '
                "which the template does not let claims replace: choose another name"
            )
        # A replaced entry keeps its place.
        merged[entry.name] = entry
    return tuple(merged.values())


def _check_targets(env: Iterable[EnvVar], containers: Iterable[str | None]) -> None:
    known = set(containers)
    for entry in env:
        if entry.containerName and entry.containerName not in known:
            raise ClaimError(
                ClaimFault.OTHER,
                f'target container "{entry.containerName}" not found in template '
                f'for environment variable "{entry.name}"',
            )


def _named(env: Iterable[EnvVar], container: Json) -> list[EnvVar]:
    name = container.get("name")
    return [entry for entry in env if entry.containerName and entry.containerName == name]


def _with(container: Json, env: Sequence[EnvVar], policy: str) -> Json:
    if not env:
        return container
    if policy == INJECTION_ALLOWED and container.get("envFrom"):
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
        elif policy == INJECTION_OVERRIDES:
            variables[place] = variable
        else:
            raise ClaimError(
                ClaimFault.OTHER,
                "environment variable override is not allowed by the template policy "
                f'for variable "{entry.name}"',
            )
    return {**container, "env": variables}


def _list_fault(entries: Iterable[VolumeClaimTemplate]) -> str:
    seen = set()
    for index, entry in enumerate(entries):
        if not entry.name:
            return f"invalid volume claim templates: name at index {index} is empty"
        if entry.name in seen:
            return f'invalid volume claim templates: duplicate name "{entry.name}"'
        seen.add(entry.name)
    return ""


def _env_rejected(detail: str) -> ClaimError:
    return ClaimError(
        ClaimFault.ENV_VARS_REJECTED, f"environment variable injection rejected: {detail}"
    )


def _claim_templates(text: str) -> ClaimError:
    return ClaimError(ClaimFault.CLAIM_TEMPLATES, text)


def _merge_failed(detail: str, fault: ClaimFault = ClaimFault.CLAIM_TEMPLATES) -> ClaimError:
    return ClaimError(fault, f"failed to merge volume claim templates: {detail}")
