"""How much memory things may take."""
