"""Runs reconciles: the work queue, the workers, the safety net; and the object writer."""
