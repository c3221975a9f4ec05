from __future__ import annotations

import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import pytest

from jupyter_sandbox.client import (
    Checkpoint,
    Checkpoints,
    EnginesView,
    LatencyView,
    LineageView,
    RuntimesView,
    View,
)
from jupyter_sandbox.client.views import runtime_line
from jupyter_sandbox.models import CheckpointState, RuntimeSummary, SessionLifecycleStatus
from tests.client import samples

# What JupyterLab's sanitizer leaves alone, without any attribute.
SAFE = {"table", "thead", "tbody", "tr", "th", "td", "ul", "li", "p", "strong", "br", "pre"}


@dataclass
class Item:
    record: RuntimeSummary


def runtimes(**changes: Any) -> RuntimesView[Item]:
    return RuntimesView([Item(samples.runtime(**changes))])


def lineage(**changes: Any) -> LineageView:
    return LineageView(
        [
            samples.node("runtime", samples.RT, None, **changes),
            samples.node("checkpoint", samples.CP, samples.RT, pinned=True),
            samples.node("runtime", samples.KID, samples.CP, name="kid", status=SessionLifecycleStatus.closed),
            samples.node("checkpoint", samples.CP2, samples.CP, name=None, state=CheckpointState.lost, memory=False),
        ]
    )


ALL: list[View[Any]] = [
    runtimes(),
    Checkpoints([Checkpoint(samples.checkpoint())]),
    lineage(),
    LatencyView([samples.latency_row()]),
    EnginesView([samples.engine()]),
]
EMPTY: list[View[Any]] = [RuntimesView([]), Checkpoints([]), LineageView([]), LatencyView([]), EnginesView([])]


def names(views: list[View[Any]]) -> list[str]:
    return [type(view).__name__ for view in views]


@pytest.mark.parametrize("view", ALL, ids=names(ALL))
def test_a_view_is_a_sequence_a_table_and_a_frame(view: View[Any]) -> None:
    assert list(view) == [view[i] for i in range(len(view))]
    assert view[:1] == (view[0],)
    assert all(len(row) == len(view.columns) for row in view.rows())
    assert all(set(record) == set(view.fields) for record in view.records())
    frame = view.to_frame()
    assert list(frame.columns) == list(view.fields)
    assert len(frame) == len(view)
    bundle = view._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"] == repr(view)


@pytest.mark.parametrize("view", EMPTY, ids=names(EMPTY))
def test_an_empty_view_says_so_and_its_frame_has_the_same_columns(view: View[Any]) -> None:
    assert repr(view) == view.empty
    assert view._repr_mimebundle_()["text/html"] == f"<p>{view.empty}</p>"
    frame = view.to_frame()
    assert (len(frame), list(frame.columns)) == (0, list(view.fields))


@pytest.mark.parametrize("views", [ALL, EMPTY], ids=["full", "empty"])
def test_times_are_moments_in_utc(views: list[View[Any]]) -> None:
    for view in views:
        frame = view.to_frame()
        for column in view.moments:
            assert str(frame[column].dtype).endswith("UTC]")
    assert str(ALL[0].to_frame()["created_at"][0]) == "2023-11-14 22:13:20+00:00"


def test_pandas_is_only_needed_for_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for view in ALL:
        assert view._repr_mimebundle_()
    with pytest.raises(ImportError):
        ALL[0].to_frame()


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert attrs == [], "no attribute is needed, so none can be misused"
        self.tags.add(tag)


@pytest.mark.parametrize(
    "view",
    [
        runtimes(
            name=samples.HOSTILE, reason=samples.HOSTILE, status=SessionLifecycleStatus.failed, engine=samples.HOSTILE
        ),
        Checkpoints([Checkpoint(samples.checkpoint(name=samples.HOSTILE, source=samples.HOSTILE))]),
        lineage(name=samples.HOSTILE),
        LatencyView([samples.latency_row(operation=samples.HOSTILE)]),
        EnginesView([samples.engine(detail=samples.HOSTILE, available=False, remedy=samples.HOSTILE)]),
        *ALL,
    ],
)
def test_html_is_safe_whatever_the_names_are(view: View[Any]) -> None:
    html = view._repr_mimebundle_()["text/html"]
    parser = Tags()
    parser.feed(html)
    assert parser.tags <= SAFE
    assert "\x1b" not in repr(view)


def test_runtimes_in_text() -> None:
    header, row = repr(runtimes()).splitlines()
    assert header.split() == ["name", "status", "engine", "isolation", "head", "memory", "created", "(UTC)", "id"]
    assert row.split() == [
        "exp", "idle", "fork", "none", "cp_cccccccc", "12.3", "MB", "2023-11-14", "22:13:20", "rt_aaaaaaaa",
    ]  # fmt: skip


def test_what_has_no_name_shows_its_whole_id() -> None:
    assert samples.RT in repr(runtimes(name=None))
    assert samples.RT not in repr(runtimes())
    assert samples.CP in repr(Checkpoints([Checkpoint(samples.checkpoint(name=None))]))


def test_a_status_says_why() -> None:
    assert "failed: killed" in repr(runtimes(status=SessionLifecycleStatus.failed, reason="killed"))
    assert "running: cell" in repr(runtimes(status=SessionLifecycleStatus.running, busy_with="cell"))
    line = runtime_line(samples.runtime(name=None, head_checkpoint_id=None))
    assert line == f"Runtime {samples.RT} · idle · fork · isolation none"


def test_lineage_is_a_tree() -> None:
    assert repr(lineage()).splitlines() == [
        "exp · idle · fork, isolation none",
        "└─ ◆ base · 180.4 MB · pinned",
        "   ├─ kid · closed · fork, isolation none",
        "   └─ ◆ cp_dddddddd · no memory · lost",
    ]
    assert lineage().html().count("<ul>") == 3


def test_an_orphan_is_a_root() -> None:
    view = LineageView([samples.node("runtime", samples.KID, samples.CP, name="kid")])
    assert [node.id for node in view.roots()] == [samples.KID]
    assert repr(view).startswith("kid")


def test_latency_has_percentiles_and_parts() -> None:
    row = LatencyView([samples.latency_row()]).rows()[0]
    assert row == (
        "checkpoint", "fork", "7", "1000.0 MB", "3.1 ms", "4.0 ms", "1234.5 ms", "0.0 ms", "1.0 ms", "2.0 ms", "0.0 ms",
    )  # fmt: skip
    assert LatencyView([samples.latency_row()]).to_frame()["p50_ms"][0] == pytest.approx(3.14159)


def test_an_engine_that_cannot_run_says_what_mends_it() -> None:
    view = EnginesView([samples.engine(available=False, detail="No KVM.", remedy="modprobe kvm")])
    assert view.rows()[0] == ("fork", "no", "none", "memory, files", "No KVM. modprobe kvm")
