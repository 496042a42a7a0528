"""What runs reconciles: the work queue, the workers, the safety net."""
