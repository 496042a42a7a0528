"""``lean-sandbox demo``: the main job, shown end to end without a cluster, and what it costs."""
