"""What the controller remembers of the lives of objects, and `lean-sandbox trace`."""
