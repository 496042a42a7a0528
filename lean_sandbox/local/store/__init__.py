"""The objects in memory, their versions and events, and the file that keeps them."""
