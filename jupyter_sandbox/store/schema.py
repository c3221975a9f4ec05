"""The tables, as the newest migration leaves them. Times are milliseconds since the Unix epoch."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("conversation_id", sa.Text, nullable=False),
    sa.Column("sender_id", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),  # never "running": that is known from what runs now
    sa.Column("status_reason", sa.Text),
    sa.Column("engine", sa.Text, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("backend_instance", sa.Text, index=True),
    sa.Column("name", sa.Text),  # a closed session keeps the name it had; who holds one is said by `names`
    sa.Column("head_checkpoint_id", sa.ForeignKey("checkpoints.checkpoint_id", use_alter=True), index=True),
    sa.Column("parent_runtime_id", sa.ForeignKey("sessions.session_id"), index=True),
    sa.Column("parent_checkpoint_id", sa.ForeignKey("checkpoints.checkpoint_id", use_alter=True), index=True),
    sa.Column("metadata", sa.JSON, nullable=False),
    sa.Column("created_at_ms", sa.Integer, nullable=False),
    sa.Column("updated_at_ms", sa.Integer, nullable=False),
)

provider_snapshots = sa.Table(
    "provider_snapshots",
    metadata,
    sa.Column("snapshot_id", sa.Text, primary_key=True),
    sa.Column("engine", sa.Text, nullable=False, index=True),
    sa.Column("snapshot", sa.JSON, nullable=False),  # engines.base.Snapshot: the ref, and what is in it
    sa.Column("doomed", sa.Boolean, nullable=False),  # no new checkpoint may refer to it: it is being deleted
    sa.Column("created_at_ms", sa.Integer, nullable=False),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("checkpoint_id", sa.Text, primary_key=True),
    sa.Column("runtime_id", sa.ForeignKey("sessions.session_id"), nullable=False, index=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("name", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("state_reason", sa.Text),
    # the checkpoint before it that still exists: a deletion links over what it takes away
    sa.Column("parent_checkpoint_id", sa.ForeignKey("checkpoints.checkpoint_id"), index=True),
    sa.Column("session", sa.JSON, nullable=False),  # models.SessionRecord as it was then
    sa.Column("snapshot_id", sa.ForeignKey("provider_snapshots.snapshot_id"), index=True),
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
    sa.Column("deleted_at_ms", sa.Integer),  # a tombstone: runtimes branched from it still name it
)

names = sa.Table(
    "names",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),  # "runtime" or "checkpoint"
    sa.Column("holder", sa.Text, nullable=False, index=True),  # its id; a runtime's row may not be there yet
)

operations = sa.Table(
    "operations",
    metadata,
    sa.Column("operation_id", sa.Text, primary_key=True),
    sa.Column("operation", sa.Text, nullable=False),
    sa.Column("engine", sa.Text, nullable=False),
    sa.Column("runtime_id", sa.Text),
    sa.Column("checkpoint_id", sa.Text),
    sa.Column("state", sa.Text, nullable=False),  # "intent", "committed", "ok", "failed"
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

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("result", sa.JSON(none_as_null=True)),
    sa.Column("error", sa.JSON(none_as_null=True)),
    sa.Column("http_status", sa.Integer),
    sa.Column("created_at_ms", sa.Integer, nullable=False),
)
