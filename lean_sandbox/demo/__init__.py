"""``lean-sandbox demo``: the main job on an embedded control plane, and what it costs."""
