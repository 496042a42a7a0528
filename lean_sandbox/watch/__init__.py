"""One list+watch state machine, its decoders and the tiny cache."""
