"""What the controller serves: metrics, health, profiles, traces."""
