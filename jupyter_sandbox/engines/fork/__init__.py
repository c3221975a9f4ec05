"""Engine fork: processes that branch by ``fork(2)``. Linux, no root, no daemon."""

from jupyter_sandbox.engines.fork.engine import ForkEngine

__all__ = ["ForkEngine"]
