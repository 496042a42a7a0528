"""The settings: their flags, variables and files, and what `lean-sandbox config` says."""
