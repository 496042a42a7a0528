"""The SandboxTemplate reconciler: the hash label and the shared NetworkPolicy."""
