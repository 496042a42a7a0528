"""Tests on a real control plane: etcd, kube-apiserver and kube-controller-manager on loopback."""
