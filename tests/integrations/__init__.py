"""Programs of others, pinned, against the controller: each runs in an environment of its own."""
