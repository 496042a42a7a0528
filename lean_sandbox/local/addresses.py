"""Addresses for simulated Pods: unique while in use, of one or both families."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable


class AddressesUsedUpError(Exception):
    """Every address of a range is taken."""


class AddressPool:
    """Hands out the lowest address not handed out lately; a freed one comes round again last.

    ``ranges`` are CIDR networks, one for each address a Pod gets. The first address of a range,
    which names the network, is left out. Raises ValueError for a text that is no network.
    """

    def __init__(self, ranges: Iterable[str]) -> None:
        self._ranges = [_Range(cidr) for cidr in ranges]
        self._held: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, uid: str) -> tuple[str, ...]:
        """Return the addresses of the Pod ``uid``, always the same ones until they are freed.

        Raises AddressesUsedUpError when a range has none left.
        """
        held = self._held.get(uid)
        if held is None:
            held = self._held[uid] = tuple(one.take() for one in self._ranges)
        return held

    def note(self, uid: str, addresses: tuple[str, ...]) -> None:
        """Remember that the Pod ``uid`` already has ``addresses``, from wherever it got them."""
        if not addresses or self._held.get(uid) == addresses:
            return
        self.free(uid)
        self._held[uid] = addresses
        for address in addresses:
            for one in self._ranges:
                one.used.add(address)

    def free(self, uid: str) -> None:
        """Give back what the Pod ``uid`` has."""
        for address in self._held.pop(uid, ()):
            for one in self._ranges:
                one.used.discard(address)


class _Range:
    def __init__(self, cidr: str) -> None:
        network = ipaddress.ip_network(cidr)
        self._base = network.network_address
        self._size = min(network.num_addresses, 2**32)
        self._next = 0
        self.used: set[str] = set()

    def take(self) -> str:
        for _ in range(len(self.used) + 2):
            self._next = self._next % (self._size - 1) + 1 if self._size > 1 else 0
            address = str(self._base + self._next)
            if address not in self.used:
                self.used.add(address)
                return address
        raise AddressesUsedUpError("every address of a simulated Pod network is taken")
