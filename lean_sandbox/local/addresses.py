"""Addresses for simulated Pods, unique while in use."""

from __future__ import annotations

import ipaddress


class AddressesUsedUpError(Exception):
    """Every address of the network is taken."""


class AddressPool:
    """Hands out the lowest address not handed out lately; a freed one comes round again last.

    The first address of the network, which names it, is left out.
    """

    def __init__(self, cidr: str) -> None:
        """Take the network in CIDR notation; raises ValueError for a text that is none."""
        self._network = ipaddress.IPv4Network(cidr)
        self._next = 0
        self._held: dict[str, str] = {}
        self._used: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    def take(self, uid: str) -> str:
        """Return the address of the Pod ``uid``, always the same one until it is freed.

        Raises AddressesUsedUpError when none is left.
        """
        if uid in self._held:
            return self._held[uid]
        for _ in range(len(self._used) + 2):
            self._next = self._next % (self._network.num_addresses - 1) + 1
            address = str(self._network[self._next])
            if address not in self._used:
                self.note(uid, address)
                return address
        raise AddressesUsedUpError("every address of the simulated Pod network is taken")

    def note(self, uid: str, address: str) -> None:
        """Remember that the Pod ``uid`` already has an address, from wherever it got it."""
        if address and self._held.get(uid) != address:
            self.free(uid)
            self._held[uid] = address
            self._used.add(address)

    def free(self, uid: str) -> None:
        """Give back what the Pod ``uid`` has."""
        self._used.discard(self._held.pop(uid, ""))
