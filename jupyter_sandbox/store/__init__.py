"""Durable metadata in SQLite.

``database`` (the lock, the one writer thread, transactions) · ``schema`` (tables) · ``migrations`` (Alembic) ·
``sessions``, ``checkpoints``, ``snapshots``, ``operations``, ``names``, ``idempotency`` (functions over one
connection, to be combined in a transaction).
"""
