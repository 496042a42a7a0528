"""Opt-in helpers beside a controller of Sandboxes: each acts as a careful user would."""
