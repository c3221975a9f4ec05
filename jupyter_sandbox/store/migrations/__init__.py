"""Alembic's scripts; `jupyter_sandbox.store.database` runs them when a store is opened."""
