"""``lean-sandbox bench``: scenarios under load, memory, and the cost of one event."""
