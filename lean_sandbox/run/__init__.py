"""Work queue, workers and the small memories that save requests."""
