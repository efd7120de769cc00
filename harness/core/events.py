"""Progress events of a running cell; does not import torch."""

from __future__ import annotations

from collections.abc import Callable

Event = dict[str, object]
"""Keys: ``phase``, ``done``, ``total``, ``epoch``, ``epochs``, ``score``, ``message``."""
Progress = Callable[[Event], None]
"""Receives the events."""
