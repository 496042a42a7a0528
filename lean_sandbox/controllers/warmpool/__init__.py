"""The SandboxWarmPool reconciler: keeps pools full without standing in the way of claims."""
