"""The SandboxClaim reconciler: bind first, everything else afterwards."""
