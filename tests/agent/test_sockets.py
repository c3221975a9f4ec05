from __future__ import annotations

import pytest

from jupyter_sandbox.agent.sockets import connect_in, listen_in


def test_a_socket_in_a_directory_that_is_too_deep_for_an_address(tmp_path):
    deep = tmp_path.joinpath(*["d" * 50] * 5)
    deep.mkdir(parents=True)
    with listen_in(str(deep), "link") as listener, connect_in(str(deep), "link") as client:
        server, _ = listener.accept()
        with server:
            client.sendall(b"hello")
            assert server.recv(10) == b"hello"


def test_an_old_socket_is_replaced(tmp_path):
    listen_in(str(tmp_path), "link").close()
    with pytest.raises(ConnectionRefusedError):
        connect_in(str(tmp_path), "link")
    with listen_in(str(tmp_path), "link"), connect_in(str(tmp_path), "link"):
        pass


def test_nobody_there_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        connect_in(str(tmp_path), "link")
