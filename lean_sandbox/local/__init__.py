"""An embedded control plane for the demo, the tests and anyone without a cluster."""
