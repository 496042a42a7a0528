"""What happened to one object, for a person: an observer, of which the controller knows nothing."""
