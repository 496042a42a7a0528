"""Writes: reading bodies, checking, patching, applying, storing, deleting."""
