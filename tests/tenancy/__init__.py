"""What one tenant cannot do to another."""
