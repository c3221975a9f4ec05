"""The client, written once: the `_sync` package beside this one is derived from it by ``scripts/derive_sync.py``."""
