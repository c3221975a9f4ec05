"""Alembic's entry: migrates over the connection that the caller put into the configuration."""

from __future__ import annotations

from alembic import context

from jupyter_sandbox.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
