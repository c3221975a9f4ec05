"""Fixtures for every test."""

from tests.support.server_process import jupyter_server_process, shared_server_process

__all__ = ["jupyter_server_process", "shared_server_process"]
