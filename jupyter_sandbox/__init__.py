"""Branch a live computation the way you branch code."""

from jupyter_sandbox._version import __version__

__all__ = ["__version__"]
