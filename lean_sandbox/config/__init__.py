"""The options of the controller: what there is, where the values come from."""
