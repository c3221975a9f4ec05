from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from jupyter_sandbox.client import connect
from jupyter_sandbox.errors import RuntimeNotFound
from jupyter_sandbox.magics import current
from jupyter_sandbox.magics.current import Desk


def test_connects_when_it_is_first_needed(client):
    made = []
    desk = Desk(lambda: made.append(connect()) or made[-1])
    assert desk.connected is None
    assert made == []
    assert desk.client is desk.client is made[0]
    assert desk.connected is made[0]
    desk.disconnect()
    assert desk.connected is None


def test_without_a_current_sandbox_says_how_to_get_one(client):
    with pytest.raises(UsageError, match="%sandbox create"):
        Desk().runtime()


def test_names_and_ids_and_the_current_one(client):
    exp, other = client.runtimes.create(name="exp"), client.runtimes.create()
    desk = Desk()
    desk.use(exp)
    assert desk.current_id == desk.runtime().id == exp.id
    assert desk.runtime(other.id).id == other.id
    assert desk.runtime("exp").id == exp.id
    with pytest.raises(RuntimeNotFound, match="nowhere"):
        desk.runtime("nowhere")
    desk.leave(other.id)
    assert desk.current_id == exp.id
    desk.leave(exp.id)
    assert desk.current_id is None
    desk.disconnect()


def test_a_server_that_is_gone_is_looked_for_again(client, connected, monkeypatch):
    monkeypatch.setattr(current, "_TRUSTED_S", 0.0)
    gone = type(client)(type(client.endpoint)("http://127.0.0.1:9", "t"))
    found = [gone, connect()]
    desk = Desk(lambda: found.pop(0))
    assert desk.client is gone
    assert desk.client.endpoint.url == connected.url
    desk.disconnect()
