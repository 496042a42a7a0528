"""``lean-sandbox bench``: the controller's memory and the cost of one event, on this machine."""
