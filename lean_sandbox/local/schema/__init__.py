r"""What an API server does with a schema: prune, default, validate, and say what is wrong.

The functions of the modules, all pure (a schema is a plain dict and never changed, objects are
changed in place):

``prune(obj, schema) -> list[str]``
    Remove fields the schema does not know; return their paths (``spec.containers[0].foo``), sorted.
    At the root, apiVersion, kind and metadata stay (metadata: unknown ObjectMeta fields go).
``apply_defaults(obj, schema) -> None``
    Write schema defaults; a null that is not nullable becomes the default or disappears.
``validate(obj, schema, *, old=None, before=(), is_status=False) -> list[FieldError]``
    Types, required, enums, patterns, bounds, formats, list sets and maps, then CEL rules
    (`x-kubernetes-validations`; transition rules only when `old` is given). Metadata of the root is
    not looked at: pass what ``validate_metadata`` found as `before` (a blocking error there leaves
    the CEL rules out) and answer with both lists. `is_status` is for writes to `/status`.
``FieldError(field, reason, message, bad_value)``
    One cause of a 422; ``str(error)`` is ``field: message``.
``invalid_status(kind, group, name, errors) -> dict``
    The Status body of a 422.
``unknown_field_errors(paths) -> list[str]``
    ``unknown field "spec.foo"`` for each path: the texts of warnings under fieldValidation=Warn.
``strict_decoding_status(kind, version, paths, duplicates=()) -> dict``
    The Status body of the 400 under fieldValidation=Strict.
``warning_header(text) -> str``
    The value of one ``Warning`` response header: ``299 - "unknown field \"spec.foo\""``.
``decode_errors(obj, schema, kind, version) -> dict | None``
    For built-in kinds: the 400 Status a decoder answers when JSON types do not fit, None when they
    do. (Custom kinds report wrong types as 422 from ``validate``.)
``metadata_decode_errors(obj, kind, version) -> dict | None``
    The same for the metadata of a custom kind.
``builtin_schema(kind, api_version=None) -> dict``
    The schema of a built-in kind, computed at first use (`api_version` tells the two Events apart).
    Raises KeyError for kinds that are not known. Shared sub-schemas, for JSONSchemaProps a cycle:
    read only, not to be dumped (``local.openapi`` writes the documents).
``core_defaults(kind, obj) -> None``, ``core_validate(kind, obj, old=None) -> list[FieldError]``
    What the Go code of the built-in kinds defaults and refuses. `core_validate` includes metadata.
``validate_metadata(obj, old=None, *, rule, namespaced) -> list[FieldError]``
    Names, labels, annotations, owner references, finalizers; also for custom kinds.
    ``name_rule(kind)`` gives the rule of a kind; custom kinds have the default one.
``validate_definition(crd) -> list[FieldError]``, ``definition_defaults(crd) -> None``
    A CustomResourceDefinition at creation: names, versions, structural schema, CEL rules compile.

Order for a custom object: metadata_decode_errors, prune, apply_defaults, validate_metadata,
validate.
Order for a built-in object: decode_errors, prune, core_defaults, core_validate.
"""
