"""What the API calls things, as tests write it."""

from __future__ import annotations

# Kinds, as the store of the embedded control plane knows them.
SANDBOXES = "sandboxes.agents.x-k8s.io"
CLAIMS = "sandboxclaims.extensions.agents.x-k8s.io"
POOLS = "sandboxwarmpools.extensions.agents.x-k8s.io"
TEMPLATES = "sandboxtemplates.extensions.agents.x-k8s.io"
POLICIES = "networkpolicies.networking.k8s.io"
LEASES = "leases.coordination.k8s.io"

EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"

# The controller, as the server knows it.
CONTROLLER = "system:serviceaccount:agent-sandbox-system:agent-sandbox-controller"

# Labels and annotations.
ADOPTABLE = "agents.x-k8s.io/adoptable"
ANNOTATION = "agents.x-k8s.io/sandbox-name"
CLAIM_UID = "agents.x-k8s.io/claim-uid"
CREATED_BY = "agents.x-k8s.io/created-by"
LAUNCH_TYPE = "agents.x-k8s.io/launch-type"
NAME_HASH = "agents.x-k8s.io/sandbox-name-hash"
POD_NAME = "agents.x-k8s.io/pod-name"
POD_TEMPLATE_HASH = "agents.x-k8s.io/sandbox-pod-template-hash"
REF_HASH = "agents.x-k8s.io/sandbox-template-ref-hash"
TEMPLATE_HASH = "agents.x-k8s.io/sandbox-template-hash"
TEMPLATE_REF = "agents.x-k8s.io/sandbox-template-ref"
WARM_POOL = "agents.x-k8s.io/warm-pool-sandbox"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
