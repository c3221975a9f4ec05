"""The control plane, which knows engines and rows and nothing of Jupyter or HTTP.

``control`` (`ControlPlane`, the one thing others use) · ``runtimes`` (create, attach, pause, resume, close) ·
``checkpoints`` (take, delete, pin, prune, delete-snapshot) · ``branching`` (checkout, fork) · ``operate`` (cells,
commands, files) · ``backends`` (what is bound to what, and who died) · ``hosts`` (engines that started) ·
``snapshots`` (use and collection) · ``locks``, ``dirty``, ``streams``, ``operations``, ``names`` (mechanisms) ·
``lineage``, ``latency`` (pure) · ``reconcile`` (what the rows say against what exists) · ``replay`` (idempotency keys).
"""

from jupyter_sandbox.service.config import ServiceConfig
from jupyter_sandbox.service.control import ControlPlane

__all__ = ["ControlPlane", "ServiceConfig"]
