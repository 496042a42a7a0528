"""The SandboxWarmPool reconciler: keeps pools full without delaying claims."""
