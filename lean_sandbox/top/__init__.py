"""A live view of a cluster's pools and claims: an observer, which needs no controller."""
