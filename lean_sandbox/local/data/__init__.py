"""What kube-apiserver says of its kinds, recorded by ``.ci/tasks record``; example manifests."""
