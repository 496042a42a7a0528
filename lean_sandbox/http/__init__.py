"""What the controller serves over HTTP: metrics, health, profiles."""
