"""Sessions, checkpoints, provider snapshots, names, operations and idempotency keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("sender_id", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("status_reason", sa.Text),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("backend_instance", sa.Text, index=True),
        sa.Column("name", sa.Text),
        # SQLite resolves a reference when rows are written, so the two tables may name each other
        sa.Column("head_checkpoint_id", sa.Text, sa.ForeignKey("checkpoints.checkpoint_id"), index=True),
        sa.Column("parent_runtime_id", sa.Text, sa.ForeignKey("sessions.session_id"), index=True),
        sa.Column("parent_checkpoint_id", sa.Text, sa.ForeignKey("checkpoints.checkpoint_id"), index=True),
        sa.Column("metadata", sa.JSON, nullable=False),
        sa.Column("created_at_ms", sa.Integer, nullable=False),
        sa.Column("updated_at_ms", sa.Integer, nullable=False),
    )
    op.create_table(
        "provider_snapshots",
        sa.Column("snapshot_id", sa.Text, primary_key=True),
        sa.Column("engine", sa.Text, nullable=False, index=True),
        sa.Column("snapshot", sa.JSON, nullable=False),
        sa.Column("doomed", sa.Boolean, nullable=False),
        sa.Column("created_at_ms", sa.Integer, nullable=False),
    )
    op.create_table(
        "checkpoints",
        sa.Column("checkpoint_id", sa.Text, primary_key=True),
        sa.Column("runtime_id", sa.Text, sa.ForeignKey("sessions.session_id"), nullable=False, index=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("state_reason", sa.Text),
        sa.Column("parent_checkpoint_id", sa.Text, sa.ForeignKey("checkpoints.checkpoint_id"), index=True),
        sa.Column("session", sa.JSON, nullable=False),
        sa.Column("snapshot_id", sa.Text, sa.ForeignKey("provider_snapshots.snapshot_id"), index=True),
        sa.Column("memory", sa.Boolean, nullable=False),
        sa.Column("files", sa.Boolean, nullable=False),
        sa.Column("processes", sa.Boolean, nullable=False),
        sa.Column("shared_memory", sa.Boolean, nullable=False),
        sa.Column("not_captured", sa.JSON, nullable=False),
        sa.Column("bytes", sa.Integer),
        sa.Column("file_bytes", sa.Integer),
        sa.Column("pinned", sa.Boolean, nullable=False),
        sa.Column("auto", sa.Boolean, nullable=False),
        sa.Column("release_with_forks", sa.Boolean, nullable=False),
        sa.Column("metadata", sa.JSON, nullable=False),
        sa.Column("created_at_ms", sa.Integer, nullable=False),
        sa.Column("snapshot_deleted_at_ms", sa.Integer),
        sa.Column("deleted_at_ms", sa.Integer),
    )
    op.create_table(
        "names",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False, index=True),
    )
    op.create_table(
        "operations",
        sa.Column("operation_id", sa.Text, primary_key=True),
        sa.Column("operation", sa.Text, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("runtime_id", sa.Text),
        sa.Column("checkpoint_id", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.Text, index=True),
        sa.Column("error", sa.JSON),
        sa.Column("state_bytes", sa.Integer),
        sa.Column("queue_ms", sa.Float),
        sa.Column("service_ms", sa.Float),
        sa.Column("engine_ms", sa.Float),
        sa.Column("provider_ms", sa.Float),
        sa.Column("started_at_ms", sa.Integer, nullable=False, index=True),
        sa.Column("finished_at_ms", sa.Integer),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("result", sa.JSON),
        sa.Column("error", sa.JSON),
        sa.Column("http_status", sa.Integer),
        sa.Column("created_at_ms", sa.Integer, nullable=False),
    )
