"""Writes: reading bodies, checking, patching, applying, storing, deleting; and what follows."""
