"""The report as one file: data, script and style in it, nothing fetched.

The script builds every element with text nodes, and the page's content security policy allows that script
alone (by its hash) and no request, so that a name from data can neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any

SCRIPTS = ("base.js", "table.js", "charts.js", "panels.js", "main.js")
STYLES = ("report.css",)
_LITERAL = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(data: dict[str, Any]) -> str:
    """The HTML of :func:`harness.leaderboard.html.data.report`'s data."""
    script = "\n".join(map(_asset, SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(f"Leaderboard of {data['folder']}"),
        "STYLE": "\n".join(map(_asset, STYLES)),
        "DATA": literal(data),
        "SCRIPT": script,
    }
    # one pass: nothing that a part brings along is taken for a place
    return re.sub(r"@@([A-Z]+)@@", lambda m: parts[m[1]], _asset("template.html"))


def literal(data: Any) -> str:
    """JSON that may stand in a script element: no character in it means anything to HTML."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.encode("utf-8", "backslashreplace").decode()
    return re.sub("[<>&\u2028\u2029]", lambda m: _LITERAL[m[0]], text)


def _asset(name: str) -> str:
    return (files("harness.leaderboard.html") / "assets" / name).read_text(encoding="utf-8")
