"""The process: which parts there are, how they start and stop, who leads."""
