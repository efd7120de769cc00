"""What a cell tells while it runs; torch-free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Progress = Callable[[dict[str, Any]], None]
"""Gets small dicts: ``phase``, ``done``, ``total``, ``epoch``, ``epochs``, ``score``, ``message``."""
