"""Progress events of a running cell; does not import torch."""

from __future__ import annotations

from collections.abc import Callable

Event = dict[str, object]
"""Keys: ``phase``, ``done``, ``total``, ``epoch``, ``epochs``, ``score``, ``message``."""
WARNING = "warning: "
"""Begins the ``message`` of an event that the terminal must show."""
Progress = Callable[[Event], None]
"""Receives the events."""
