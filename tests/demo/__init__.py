"""Laws of the demo."""
