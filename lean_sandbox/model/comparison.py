"""Compares objects with their desired state, as the typed API would.

Null, empty and absent lists and maps are one, quantities count by value, and a zero counts as
absent unless its field tells the two apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from lean_sandbox.model.service import DEFAULT_PROTOCOL

# Fields that tell absent from zero (false, 0, "") in core/v1; no other scalar does.
_TELLS_ABSENT: Final = frozenset(
    # Of Pods,
    {"activeDeadlineSeconds", "automountServiceAccountToken", "enableServiceLinks", "hostUsers"}
    | {"hostnameOverride", "preemptionPolicy", "priority", "resourceClaimName"}
    | {"resourceClaimTemplateName", "runtimeClassName", "setHostnameAsFQDN"}
    | {"shareProcessNamespace", "terminationGracePeriodSeconds", "tolerationSeconds"}
    | {"minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy"}
    # of security contexts,
    | {"allowPrivilegeEscalation", "fsGroup", "fsGroupChangePolicy", "gmsaCredentialSpec"}
    | {"gmsaCredentialSpecName", "hostProcess", "localhostProfile", "privileged", "procMount"}
    | {"readOnlyRootFilesystem", "runAsGroup", "runAsNonRoot", "runAsUser", "runAsUserName"}
    | {"seLinuxChangePolicy", "supplementalGroupsPolicy"}
    # of containers and volumes.
    | {"stopSignal", "optional", "mountPropagation", "recursiveReadOnly"}
    | {"cachingMode", "defaultMode", "expirationSeconds", "maxExpirationSeconds", "mode"}
    | {"podGroupName", "storageClassName", "volumeAttributesClassName", "volumeMode"}
)
# The same by the field around it, for names that are plain elsewhere.
_TELLS_ABSENT_WITHIN: Final = frozenset(
    {("azureDisk", "fsType"), ("azureDisk", "kind"), ("azureDisk", "readOnly")}
    | {("csi", "fsType"), ("csi", "readOnly"), ("clusterTrustBundle", "name")}
    | {("clusterTrustBundle", "signerName"), ("dataSource", "apiGroup"), ("fc", "lun")}
    | {("dataSourceRef", "apiGroup"), ("dataSourceRef", "namespace")}
    | {("emptyDir", "sizeLimit"), ("grpc", "service"), ("hostPath", "type")}
    | {("iscsi", "initiatorName"), ("options", "value")}
    | {(kind, "restartPolicy") for kind in ("containers", "ephemeralContainers", "initContainers")}
)
_QUANTITY_MAPS: Final = frozenset({"limits", "overhead", "requests"})
_QUANTITY_FIELDS: Final = frozenset({("emptyDir", "sizeLimit"), ("resourceFieldRef", "divisor")})
# An empty value in a map is a value.
_MAPS: Final = _QUANTITY_MAPS | frozenset(
    {"annotations", "labels", "matchLabels", "nodeSelector", "userAnnotations", "volumeAttributes"}
)
# Objects whose emptiness means the same as their absence.
_SAME_WHEN_EMPTY: Final = _MAPS | frozenset({"metadata", "resources"})

_QUANTITY: Final = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,4})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_DECIMAL: Final = {
    letter: 3 * power for power, letter in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)
}
_BINARY: Final = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
# The finest unit the API keeps; finer values are rounded away from zero.
_NANO_DIGITS: Final = 9
_NANO: Final = 10**_NANO_DIGITS
# Far beyond every value the API accepts; guards against exponents that would eat all memory.
_MAX_EXPONENT: Final = 64
# Arithmetic on very many digits takes seconds; the API server itself stores none of that length.
_MOST_TEXT: Final = 128


def canonical(value: Any, key: str = "spec", parent: str = "") -> Any:
    """Return a value that equals that of every other notation with the same meaning.

    ``value`` is the field ``key`` of an object called ``parent``.
    """
    if isinstance(value, Mapping):
        fields = {k: canonical(v, k, key) for k, v in value.items()}
        if key in _MAPS:
            return fields
        if key == "ports":
            fields["protocol"] = fields.get("protocol") or DEFAULT_PROTOCOL
        return {k: v for k, v in fields.items() if not _is_absent(v, k, key)}
    if isinstance(value, list | tuple):
        # The elements are called like their list.
        return [canonical(entry, key, parent) for entry in value]
    if parent in _QUANTITY_MAPS or (parent, key) in _QUANTITY_FIELDS:
        number = parse_quantity(value)
        return value if number is None else number
    return value


def _is_absent(value: Any, key: str, parent: str) -> bool:
    if value is None or value == []:
        return True
    if value == {}:
        return key in _SAME_WHEN_EMPTY
    return not value and key not in _TELLS_ABSENT and (parent, key) not in _TELLS_ABSENT_WITHIN


def parse_quantity(value: Any) -> Fraction | None:
    """Return the exact value of a quantity as it stands in JSON, None if it is not a quantity."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _MOST_TEXT else None
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    power = int(exponent[1:]) if exponent else _DECIMAL.get(suffix, 0)
    if abs(power) > _MAX_EXPONENT:
        return None
    # Integers: a tenant's object may have 80,000 quantities, and fractions take ten times as long.
    whole, _, decimals = number.partition(".")
    digits = int(whole + decimals) * _BINARY.get(suffix, 1)
    shift = power - len(decimals) + _NANO_DIGITS
    if shift >= 0:
        return Fraction(digits * 10**shift, _NANO)
    unit = 10**-shift
    return Fraction(-(-digits // unit) if digits > 0 else digits // unit, _NANO)
