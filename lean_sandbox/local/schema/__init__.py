"""What an API server does with a schema: prune, default, validate, and say what is wrong.

All pure: a schema is a plain dict and never changed, objects are changed in place.

A custom object goes through decode_metadata, prune, apply_defaults, validate_metadata and validate;
a built-in one through decode, core_defaults, complete and core_validate.
"""
