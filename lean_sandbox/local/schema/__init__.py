"""What an API server does with a schema: prune, default, validate, and say what is wrong.

All pure: a schema is a plain dict and never changed, objects are changed in place.

A custom object goes through metadata_decode_errors, prune, apply_defaults, validate_metadata and
validate; a built-in one through decode_errors, prune, core_defaults and core_validate.
"""
