"""The SandboxClaim reconciler: bind first, everything else behind it."""
