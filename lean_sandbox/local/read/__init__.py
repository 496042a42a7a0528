"""Lists, and the forms in which objects are shown."""
