"""The manifests: what they say, what they permit, and the image they run."""
