"""Networks that fail, servers that refuse, controllers that die: the end is the same."""
