"""How lists and watches become a cache and deltas."""
