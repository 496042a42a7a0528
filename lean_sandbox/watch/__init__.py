"""The reflector (list and watch), its decoders, and the tiny cache."""
