"""What flows cost on the wire, counted in requests."""
