"""The Sandbox reconciler: pure plans of each child, and the act that carries them out."""
