"""Engines: what makes runtimes. ``base`` is the seam, ``registry`` finds engines, one package per engine."""
