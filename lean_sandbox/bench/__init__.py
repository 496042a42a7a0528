"""``lean-sandbox bench``: scenarios under load, memory, and the bounds they are held against."""
