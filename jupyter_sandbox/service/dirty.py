"""Whether a backend changed since a snapshot: a counter, not a comparison of files."""

from __future__ import annotations


class DirtyTracker:
    """Counts what may have changed a backend, and remembers the count at which a snapshot was taken.

    The counter is bumped *before* an operation: one that fails, times out or lands while a snapshot is being taken
    counts, whatever it did.
    """

    def __init__(self) -> None:
        self._generation = 0
        self._clean: tuple[str, int] | None = None

    @property
    def generation(self) -> int:
        """The count now; take it before the engine is asked for a snapshot."""
        return self._generation

    @property
    def clean_on(self) -> str | None:
        """The id of the provider snapshot that the backend still equals, as far as this control plane acted on it."""
        if self._clean is None or self._clean[1] != self._generation:
            return None
        return self._clean[0]

    def bump(self) -> None:
        """Something that may change the backend is about to happen."""
        self._generation += 1

    def taken(self, snapshot_id: str, generation: int) -> None:
        """A snapshot was taken that holds everything up to ``generation``."""
        self._clean = (snapshot_id, generation)
