"""How SandboxClaims behave, over the wire."""
