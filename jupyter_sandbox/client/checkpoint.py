"""A checkpoint as the client hands it out: its record, what it cost, and words for both."""

from __future__ import annotations

from jupyter_sandbox.client import render
from jupyter_sandbox.models import CheckpointRecord, CheckpointSummary, Timings


class Checkpoint:
    """One checkpoint; data only, so both faces of the client return the same class.

    Attributes:
        record: Everything the server says about it.
        timings: What taking it cost, in parts; None when it was listed, not taken.
        reused: Nothing had changed, so an earlier snapshot serves it too.
    """

    def __init__(self, record: CheckpointRecord, *, timings: Timings | None = None, reused: bool = False) -> None:
        self.record = record
        self.timings = timings
        self.reused = reused

    @property
    def id(self) -> str:
        """``cp_<32 hex>``."""
        return self.record.checkpoint_id

    @property
    def name(self) -> str | None:
        """The name it was given, if any."""
        return self.record.name

    @property
    def ref(self) -> str:
        """Its name, else its id: what other calls take."""
        return self.record.name or self.record.checkpoint_id

    def summary(self) -> CheckpointSummary:
        """The ten-field record of the sandboxes API."""
        return self.record.summary()

    def captured(self) -> str:
        """What it holds, in words: ``memory, files``."""
        record = self.record
        parts = (("memory", record.memory), ("files", record.files), ("processes", record.processes))
        return ", ".join(name for name, held in parts if held) or "nothing but the record"

    def headline(self) -> str:
        """One line: name, source, engine, cost and size."""
        record = self.record
        parts = [f"Checkpoint {self.ref} of {record.source}", record.engine]
        if record.state != "ready":
            parts.append(
                f"{record.state.replace('_', ' ')}{f' ({record.state_reason})' if record.state_reason else ''}"
            )
        if self.timings is not None:
            parts.append(render.milliseconds(self.timings.total_ms))
        parts.append(f"{render.megabytes(record.bytes)} memory" if record.memory else "no memory")
        if record.file_bytes is not None:
            parts.append(f"{render.megabytes(record.file_bytes)} files")
        if self.reused:
            parts.append("nothing had changed: the earlier snapshot serves it")
        if record.pinned:
            parts.append("pinned")
        return " · ".join(parts)

    def __repr__(self) -> str:
        lines = [self.headline(), f"  captured: {self.captured()}"]
        if self.record.not_captured:
            lines.append("  seen, not captured:")
            lines += [
                f"    {seen.kind}: {seen.what}{f' ({seen.remedy})' if seen.remedy else ''}"
                for seen in self.record.not_captured
            ]
        return "\n".join(render.printable(line) for line in lines)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        del include, exclude
        html = f"<p><strong>{render.escape(self.headline())}</strong><br>captured: {render.escape(self.captured())}</p>"
        if self.record.not_captured:
            rows = [(seen.kind, seen.what, seen.remedy) for seen in self.record.not_captured]
            html += render.table_html(("seen, not captured", "what", "remedy"), rows)
        return {"text/plain": repr(self), "text/html": html}
