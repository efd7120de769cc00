"""The report as one self-contained file with data, script and style.

The script builds every element from text nodes, and the content security policy allows only that script (by
its hash) and no requests, so that names from data can neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files

from harness.core.redaction import escaped_json
from harness.leaderboard.html.schema import ReportData
from harness.leaderboard.views.view import rounded

SCRIPTS = ("base.js", "table.js", "charts.js", "panels.js", "main.js")
STYLES = ("report.css",)
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(data: ReportData) -> str:
    """The HTML of :func:`harness.leaderboard.html.data.report`'s data."""
    script = "\n".join(map(_asset, SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(f"Leaderboard of {data['folder']}"),
        "STYLE": "\n".join(map(_asset, STYLES)),
        "DATA": literal(rounded(data)),
        "SCRIPT": script,
    }
    # one pass: a placeholder in inserted text is not replaced
    return re.sub(r"@@([A-Z]+)@@", lambda m: parts[m[1]], _asset("template.html"))


def literal(data: object) -> str:
    """JSON without any character that has a meaning in HTML, for a script element."""
    text = escaped_json(json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    text = text.encode("utf-8", "backslashreplace").decode()
    return re.sub("[<>&\u2028\u2029]", lambda m: _ESCAPES[m[0]], text)


def _asset(name: str) -> str:
    return (files("harness.leaderboard.html") / "assets" / name).read_text(encoding="utf-8")
