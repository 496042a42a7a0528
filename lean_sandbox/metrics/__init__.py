"""What the controller counts, and the page that shows it."""
