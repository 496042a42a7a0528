"""The simulated nodes."""
