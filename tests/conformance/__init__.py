"""Laws of the Kubernetes API, asked in the same words of the embedded server and of a real one."""
