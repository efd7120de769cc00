"""Keep the values of text keys as text on the command line.

Hydra reads ``task.name=2014`` as a number, ``name=true`` as a boolean and rejects ``path=epoch=1.ckpt``. The
keys declared here contain names, paths and columns, never numbers; their values are quoted before Hydra
parses them. Quotes, lists, mappings, interpolations, ``null``, ``???`` and functions such as ``choice(...)``
keep their meaning in Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TEXT_KEYS = frozenset(
    {
        *("name", "path", "train", "dev", "test", "files", "file", "corpus"),
        *("results_dir", "cache_dir", "text", "text_a", "text_b", "label", "id", "columns"),
        *("hub", "revision", "subset", "language", "encoding", "separator", "delimiter", "comment"),
    }
)
"""Last components of the dotted keys whose values are text."""

_ASSIGNMENT = re.compile(r"(?P<sign>\+{0,2})(?P<key>[A-Za-z_][\w.@/:-]*)=(?P<value>.*)", re.DOTALL)
_FUNCTION = re.compile(
    r"(?:choice|glob|range|interval|shuffle|sort|tag|int|float|str|bool|json_str|extend_list)\(.*\)",
    re.DOTALL,
)
_COLUMN_NUMBER = re.compile(r"\d+")
_COLUMNS = frozenset({"text", "text_a", "text_b", "label", "id"})
_ROOT_TEXT = frozenset({"name", "results_dir", "cache_dir"})
GROUPS = frozenset(
    {
        *("encoder", "strategy", "task", "body", "optimizer"),
        *("schedule", "trainer", "logger", "experiment", "debug"),
    }
)
"""Groups of the configuration; the chosen option is a file name and thus text."""


def quote_text(arguments: Iterable[str]) -> list[str]:
    """Quote the values of text keys; leave options and all other overrides unchanged."""
    return [_quote_argument(a) for a in arguments]


def is_text_key(key: str) -> bool:
    """Whether the value of the dotted key is text."""
    head, _, last = key.rpartition(".")
    return last in TEXT_KEYS if head else last in _ROOT_TEXT or last in GROUPS


def split_values(value: str) -> list[str]:
    """Split the values of a simple sweep at commas outside quotes and brackets, and strip spaces."""
    parts, depth, quote, start, at = [], 0, "", 0, 0
    while at < len(value):
        c = value[at]
        if quote:
            if c == "\\":
                at += 1
            elif c == quote:
                quote = ""
        elif c in "'\"" and not value[start:at].strip():
            quote = c
        elif c in "[{(":
            depth += 1
        elif c in "]})":
            depth = max(0, depth - 1)
        elif c == "," and depth == 0:
            parts.append(value[start:at])
            start = at + 1
        at += 1
    return [p.strip() for p in [*parts, value[start:]]]


def _quote_argument(argument: str) -> str:
    match = _ASSIGNMENT.fullmatch(argument)
    if match is None or not is_text_key(match["key"]):
        return argument
    values = split_values(match["value"])
    column = match["key"].rpartition(".")[2] in _COLUMNS
    quoted = [v if column and _COLUMN_NUMBER.fullmatch(v) else _quote_value(v) for v in values]
    return f"{match['sign']}{match['key']}={','.join(quoted)}"


def _quote_value(value: str) -> str:
    from hydra.core.override_parser.types import Quote, QuotedString

    if value in ("", "null", "???") or _is_quoted(value) or _FUNCTION.fullmatch(value):
        return value
    if value[0] + value[-1] in ("[]", "{}"):
        return value
    return QuotedString(text=value, quote=Quote.single).with_quotes()


def _is_quoted(value: str) -> bool:
    """Whether one pair of quotes encloses the whole value."""
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return False
    inside = re.sub(r"\\.", "", value[1:-1])
    return value[0] not in inside and not inside.endswith("\\")
