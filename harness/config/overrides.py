"""Keep the values of text keys as text on the command line.

Hydra reads ``task.name=2014`` as a number, ``name=true`` as a boolean and rejects ``path=epoch=1.ckpt``. The
keys declared here contain names, paths, labels and columns, never numbers; their values, and the elements of
their lists, are quoted before Hydra parses them. Quotes, mappings, interpolations, ``null``, ``???`` and
functions such as ``choice(...)`` keep their meaning in Hydra.

Hydra merges a list of options of a group into one section, which is no cell of the grid. In a sweep,
``encoder=[a,b]`` therefore means ``encoder=a,b``; elsewhere it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from harness.errors import HarnessError

TEXT_KEYS = frozenset(
    {
        *("name", "path", "train", "dev", "test", "files", "file", "corpus", "contexts"),
        *("results_dir", "cache_dir", "text", "text_a", "text_b", "label", "id", "columns"),
        *("hub", "revision", "subset", "language", "encoding", "separator", "delimiter", "comment"),
        *("positive", "labels", "unlabelled", "group", "project", "entity", "tags"),
    }
)
"""Last components of the dotted keys whose values are text."""

_ASSIGNMENT = re.compile(r"(?P<sign>\+{0,2})(?P<key>[A-Za-z_][\w.@/:-]*)=(?P<value>.*)", re.DOTALL)
_FUNCTION = re.compile(
    r"(?:choice|glob|range|interval|shuffle|sort|tag|int|float|str|bool|json_str|extend_list)\(.*\)",
    re.DOTALL,
)
TEXT_MAPPINGS = frozenset({"task.label_names"})
"""Dotted keys of mappings from text to text; Hydra would read the key ``true`` as a boolean."""
_COLUMN_NUMBER = re.compile(r"\d+")
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ENTRY = re.compile(
    rf"(?P<key>{_QUOTED}|[^:,'\"]+?)\s*:\s*(?P<value>{_QUOTED}|[^,'\"]*?)\s*(?:,\s*|$)", re.DOTALL
)
"""An entry of a mapping and the comma after it."""
_PLAIN = re.compile(r"(?!true$|false$|nan$|inf$)[A-Za-z_./-][\w./*-]*", re.IGNORECASE)
"""Elements of a list that Hydra reads as text without quotes."""
_COLUMNS = frozenset({"text", "text_a", "text_b", "label", "id"})
_ROOT_TEXT = frozenset({"name", "results_dir", "cache_dir"})
GROUPS = frozenset(
    {
        *("encoder", "strategy", "task", "body", "optimizer"),
        *("schedule", "trainer", "logger", "experiment", "debug"),
    }
)
"""Groups of the configuration; the chosen option is a file name and thus text."""
OVERLAYS = frozenset({"experiment", "debug"})
"""Groups whose options change a configuration; several of them can be merged."""


def quote_text(arguments: Iterable[str]) -> list[str]:
    """Quote the values of text keys; leave options and all other overrides unchanged."""
    return [_quote_argument(a) for a in arguments]


def sweep_lists(arguments: Iterable[str], *, multirun: bool) -> list[str]:
    """Replace ``group=[a,b]`` by ``group=a,b`` in a sweep; a list of one option is that option.

    Raises:
        HarnessError: several options of a group without a sweep.
    """
    return [_sweep_list(a, multirun=multirun) for a in arguments]


def sweep_parameter(key: str, value: object) -> str:
    """Return ``key=value`` for an entry of ``hydra.sweeper.params``; a YAML list of a group's options is a
    sweep over them."""
    if isinstance(value, Sequence) and not isinstance(value, str) and is_component_group(key):
        value = ",".join(map(str, value))
    return _quote_argument(_sweep_list(f"{key}={value}", multirun=True))


def is_component_group(key: str) -> bool:
    """Whether an override with this key selects a component, such as ``encoder@encoder.members.first``."""
    group = key.lstrip("+").partition("@")[0]
    return group in GROUPS and group not in OVERLAYS


def refuse_merged_options(choices: Collection[str], groups: Iterable[str]) -> None:
    """Refuse several options of a group, which Hydra has merged: it then lists no choice for the group.

    Args:
        choices: the groups with a chosen option, of ``hydra.runtime.choices``.
        groups: sections of the composed configuration.

    Raises:
        HarnessError: see above.
    """
    for group in groups:
        if group in GROUPS - OVERLAYS and group not in choices:
            raise HarnessError(
                f"{group}: a defaults list of the configuration names several options, and a cell has one "
                f"{group}; name one there, or write {group}=NAME,NAME and add -m to run one cell per option"
            )


def refuse_group_list(key: str, options: Sequence[str]) -> None:
    """Raise HarnessError for several options of a group in one cell."""
    raise HarnessError(
        f"{key}=[{','.join(options)}]: a cell has one {key.partition('@')[0]}; to run one cell per option, "
        f"write {key}={','.join(options)} and add -m"
    )


def text_mapping(key: str, value: object) -> object:
    """Parse ``{a: b, c: d}`` given as text; both sides stay text.

    Raises:
        HarnessError: an entry without a colon.
    """
    if not isinstance(value, str) or value[:1] + value[-1:] != "{}":
        return value
    out: dict[str, str] = {}
    rest = value[1:-1].strip()
    while rest:
        entry = _ENTRY.match(rest)
        if entry is None:
            raise HarnessError(
                f"{key}={value}: expected {{LABEL: NAME, ...}}, not {rest.partition(',')[0]!r}"
            )
        out[_unquoted(entry["key"])] = _unquoted(entry["value"])
        rest = rest[entry.end() :].strip()
    return out


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1].replace(f"\\{text[0]}", text[0]) if _is_quoted(text) else text


def _sweep_list(argument: str, *, multirun: bool) -> str:
    match = _ASSIGNMENT.fullmatch(argument)
    if match is None or not is_component_group(match["key"]):
        return argument
    values = split_values(match["value"])
    lists = [v for v in values if v[:1] + v[-1:] == "[]"]
    options = [o for v in values for o in (split_values(v[1:-1]) if v in lists else [v])]
    if not lists or not all(options):
        return argument
    if len(options) > 1 and not multirun:
        refuse_group_list(match["key"], options)
    return f"{match['sign']}{match['key']}={','.join(options)}"


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
    if match is not None and match["key"] in TEXT_MAPPINGS:
        quoted = [_quote_text(v) if v[:1] + v[-1:] == "{}" else v for v in split_values(match["value"])]
        return f"{match['sign']}{match['key']}={','.join(quoted)}"
    if match is None or not is_text_key(match["key"]):
        return argument
    values = split_values(match["value"])
    column = match["key"].rpartition(".")[2] in _COLUMNS
    quoted = [v if column and _COLUMN_NUMBER.fullmatch(v) else _quote_value(v) for v in values]
    return f"{match['sign']}{match['key']}={','.join(quoted)}"


def _quote_text(value: str) -> str:
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text=value, quote=Quote.single).with_quotes()


def _quote_value(value: str) -> str:
    if value in ("", "null", "???") or _is_quoted(value) or _FUNCTION.fullmatch(value):
        return value
    if value[0] + value[-1] == "[]":
        elements = split_values(value[1:-1])
        return f"[{','.join(map(_quote_element, elements))}]" if all(elements) else value
    if value[0] + value[-1] == "{}":
        return value
    return _quote_text(value)


def _quote_element(value: str) -> str:
    """Quote an element of a list if Hydra would not read it as text."""
    if _is_quoted(value) or value == "null" or value[0] in "[{$" or _PLAIN.fullmatch(value):
        return value
    return _quote_text(value)


def _is_quoted(value: str) -> bool:
    """Whether one pair of quotes encloses the whole value."""
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return False
    inside = re.sub(r"\\.", "", value[1:-1])
    return value[0] not in inside and not inside.endswith("\\")
