"""How an object comes into being: what it is given, what is checked, what is stored."""

from __future__ import annotations

from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause, already_exists, bad_request, forbidden, not_found
from lean_sandbox.local.kinds.registry import Kind
from lean_sandbox.local.schema.errors import warning_header
from lean_sandbox.local.schema.metadata import ordered_metadata, tidy_metadata
from lean_sandbox.local.schema.pod_defaults import (
    add_token,
    add_tolerations,
    resolve_priority,
    resolve_runtime,
)
from lean_sandbox.local.schema.services import assign_address, assign_node_ports
from lean_sandbox.local.store.store import Entry
from lean_sandbox.local.write.admission import prepare_create, unowned
from lean_sandbox.local.write.bodies import WriteOptions, check_namespace
from lean_sandbox.local.write.objects import Objects, check_size
from lean_sandbox.local.write.ownership import FieldManager, track_update

Json = dict[str, Any]

_STORED_ONLY: Final = ("apps", "autoscaling", "batch")
"""The groups of kinds that nothing acts on."""
PROTECTED: Final = "kubernetes.io/pvc-protection"
"""The finalizer of claims for volumes."""


class Creating(Objects):
    """Creates objects, and stores what becomes of them."""

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        home = self.store.collection("namespaces").entries.get(namespace)
        if home is None:
            raise not_found("", "namespaces", namespace)
        if home.fields.get("status.phase") == "Terminating":
            why = f"namespace {namespace} is being terminated"
            raise forbidden(
                kind.group,
                kind.plural,
                name,
                f"unable to create new content in namespace {namespace} because it is being"
                " terminated",
                [ErrorCause("NamespaceTerminating", why, "metadata.namespace")],
            )

    def create(self, kind: Kind, namespace: str, obj: Json, options: WriteOptions) -> Entry:
        """Store a new object and return it.

        Raises:
            StatusError: whatever is wrong with it.

        """
        self.decode(kind, obj, options)
        metadata = obj["metadata"]
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        name = metadata.get("name") or ""
        if kind.storage in self.registry.ending:
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(kind.group, kind.plural, name, why)
        check_namespace(namespace, metadata)
        self._check_namespace(kind, namespace, name)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:58] + self.suffix()
        if kind.namespaced:
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            metadata.pop(key, None)
        metadata["uid"] = self.new_uid()
        metadata["creationTimestamp"] = self.now()
        if kind.has_generation:
            metadata["generation"] = 1
        else:
            metadata.pop("generation", None)
        options.warnings.extend(tidy_metadata(kind, metadata, {}))
        if kind.group in _STORED_ONLY:
            why = f"nothing on this server acts on kind {kind.kind}: it is stored, and no more"
            options.warnings.append(warning_header(why))
        self.admission.mutate(kind, obj)
        given = obj.get("spec")
        sent = set(given) if isinstance(given, dict) else set()
        prepare_create(kind, obj)
        self.admission.default(kind, obj)
        self.admission.validate(kind, obj, None)
        metadata["managedFields"], _ = track_update(
            unowned(kind, obj, sent),
            obj,
            self.admission.structure(kind),
            FieldManager.of(kind, options, "Update"),
            metadata["creationTimestamp"],
            is_new=True,
        )
        if kind.storage == "pods":
            self._admit_pod(namespace, obj)
        elif kind.storage == "persistentvolumeclaims":
            metadata["finalizers"] = [*(metadata.get("finalizers") or ()), PROTECTED]
        return self.store_new(kind, namespace, obj, options)

    def _admit_pod(self, namespace: str, obj: Json) -> None:
        """Add what the creator does not come to own. Refuses an account that is not there."""
        accounts = self.store.collection("serviceaccounts").entries
        wanted = obj["spec"]["serviceAccountName"]
        account = accounts.get(self.key(namespace, wanted))
        if account is None:
            why = f'looking up service account {namespace}/{wanted}: serviceaccount "{wanted}"'
            raise forbidden("", "pods", obj["metadata"]["name"], f"error {why} not found")
        resolve_priority(obj, self._all("priorityclasses.scheduling.k8s.io"))
        resolve_runtime(obj, self._all("runtimeclasses.node.k8s.io"))
        add_token(obj, account.load(), self.suffix())
        add_tolerations(obj)

    def _all(self, storage: str) -> dict[str, Json]:
        entries = self.store.collection(storage).entries
        return {key: entry.load() for key, entry in entries.items()}

    def assign_node_ports_of(self, kind: Kind, obj: Json) -> None:
        """Give a Service its node ports; of others only those are read that can have some."""
        if kind.storage == "services":
            entries = self.collection(kind).entries
            here = self.key(obj["metadata"]["namespace"], obj["metadata"]["name"])
            have_ports = ("NodePort", "LoadBalancer")
            others = [e for k, e in entries.items() if k != here]
            loaded = [e.load() for e in others if e.fields.get("spec.type") in have_ports]
            assign_node_ports(obj, loaded)

    def store_new(self, kind: Kind, namespace: str, obj: Json, options: WriteOptions) -> Entry:
        """Store an object that has passed all checks but that of its name. Raises StatusError."""
        obj["metadata"] = ordered_metadata(obj["metadata"])
        name = obj["metadata"]["name"]
        collection = self.collection(kind)
        key = self.key(namespace, name)
        held = collection.entries.get(key)
        if held is not None:
            raise already_exists(kind.group, kind.plural, name, is_deleting=held.deleting)
        if kind.storage == "services":
            self.assign_node_ports_of(kind, obj)
            taken = {entry.fields.get("spec.clusterIP") for entry in collection.entries.values()}
            assign_address(obj, taken)
        fields = self.fields(kind, obj)
        trial = Entry(key, obj, 0, fields)
        check_size(trial)
        return trial if options.dry_run else self.store.put(collection, key, obj, fields)

    def decode(self, kind: Kind, obj: Json, options: WriteOptions) -> None:
        """Give the members of an object the types that its kind has, and it metadata.

        Raises:
            StatusError: 400.

        """
        self.admission.decode(kind, obj, options.validation, options.warnings)
        if obj.get("metadata") is None:
            obj["metadata"] = {}
