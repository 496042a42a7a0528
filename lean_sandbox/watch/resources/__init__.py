"""What is watched: for each kind its entry in the cache and its predicate."""
