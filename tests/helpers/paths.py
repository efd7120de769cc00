"""Where the checkout lies."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONPATH = os.pathsep.join(str(ROOT / part) for part in (".", "tasks", "harness/plugins"))
"""For subprocesses: the packages of this checkout, whatever else is installed."""
