"""Checks of IP addresses and of networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema.causes import invalid
from lean_sandbox.local.schema.formats import without_zeros


def address(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check an IP address."""
    if value and not _is_address(value):
        text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        if _is_address(without_zeros(value)):
            text = "must not have leading 0s"
        yield invalid(where, value, text)


def _is_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text) is not None and "%" not in text
    except ValueError:
        return False


def parsed_network(text: str) -> Any:
    """Return a network of addresses, None for another text."""
    _, slash, length = text.partition("/")
    try:
        return ipaddress.ip_network(text, strict=False) if slash and length.isdigit() else None
    except ValueError:
        return None


def network(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check a network of addresses, in its one form."""
    if not value:
        return
    found = parsed_network(value)
    if found is not None:
        if found.network_address != ipaddress.ip_address(value.partition("/")[0]):
            text = "must not have bits set beyond the prefix length"
            yield invalid(where, value, text)
    elif parsed_network(without_zeros(value)) is not None:
        yield invalid(where, value, "must not have leading 0s in IP or prefix length")
    else:
        text = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        yield invalid(where, value, text)
