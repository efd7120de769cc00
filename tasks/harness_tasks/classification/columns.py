"""Choosing the columns of text, second text, label and so on in a table.

A column that is not configured is recognised by its name. Where several names are plausible, the choice is
refused with the setting for each reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.data.reading.log import ambiguous
from harness.errors import HarnessError, did_you_mean

Names = str | Sequence[str] | None

_TEXT = (
    "text",
    "sentence",
    "question",
    "review",
    "content",
    "comment",
    "tweet",
    "document",
    "body",
    "utterance",
)
_JOINED = ("title", "description")
_PAIRS = (
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("sentence_a", "sentence_b"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("question", "context"),
    ("question", "answer"),
    ("query", "passage"),
    ("query", "document"),
    ("query", "text"),
    ("claim", "evidence"),
    ("context", "response"),
    ("text", "hypothesis"),
)
_LABEL = (
    "label",
    "labels",
    "gold_label",
    "class",
    "category",
    "target",
    "sentiment",
    "intent",
)
_LABEL_COPIES = ("class_index", "label_text")
"""Numbers or names of the classes of another column; used where there is no other."""
_KNOWN_TEXTS = {*_TEXT, *_JOINED, *(name for pair in _PAIRS for name in pair)}
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Columns:
    """Column names as configured; each may be a list of candidates, of which the first that exists is used.

    ``a.b`` is the value under the key b of the objects in column a, unless there is a column of that name.

    Attributes:
        text: None = recognised by its name. ``a+b`` joins columns with a blank.
        text_b: None = no second text.
        label: None = recognised by its name.
        id: None = rows are numbered.
        tags: slices of each row, separated by blanks or a list; None = no such column.
        group: rows with equal values stay on the same side of a cut; None = no such column.
        target: index of the target word, one column per text; empty = no target words.
    """

    text: Names = None
    text_b: Names = None
    label: Names = None
    id: Names = None
    tags: Names = None
    group: Names = None
    target: tuple[str, ...] = ()

    def find(self, columns: Sequence[str], source: str) -> dict[str, str]:
        """The column of each role in use.

        Raises:
            HarnessError: a column does not exist (lists the existing ones), several columns are plausible
                (lists the settings), or one column has two roles.
        """
        resolved: dict[str, str] = {}
        for role in ("text_b", "id", "tags", "group"):
            if getattr(self, role):
                resolved[role] = _given(role, getattr(self, role), columns, source)
        for side, name in enumerate(self.target):
            resolved[f"target_{side}"] = _given("target", name, columns, source)
        if self.text is not None:
            resolved["text"] = _given("text", self.text, columns, source)
        if self.label is not None:
            resolved["label"] = _given("label", self.label, columns, source)
        if self.label is None:
            roles = ("text", "text_b", "target_0", "target_1")
            resolved["label"] = _find_label(_free(columns, resolved, roles), columns, source)
        if self.text is None:
            free = _free(columns, resolved, tuple(resolved))
            resolved["text"] = _find_text(free, resolved.get("text_b"), columns, source)
        _check_roles(resolved, columns, source)
        order = ("text", "text_b", "label", "id", "tags", "group")
        return {role: resolved[role] for role in (*order, "target_0", "target_1") if role in resolved}

    def settled(self) -> dict[str, str] | None:
        """Every role's column, if the configuration alone determines them; else None."""
        names = {role: getattr(self, role) for role in ("text", "text_b", "label", "id", "tags", "group")}
        if not names["text"] or not names["label"]:
            return None
        if not all(value is None or isinstance(value, str) for value in names.values()):
            return None
        targets = {f"target_{side}": name for side, name in enumerate(self.target)}
        return {role: value for role, value in names.items() if value} | targets

    def is_header(self, cells: Sequence[str]) -> bool:
        """Whether the first row of a file is a header line."""
        names = [c.strip() for c in cells]
        for role, guesses in (("text", _KNOWN_TEXTS), ("label", {*_LABEL, *_LABEL_COPIES})):
            given = getattr(self, role)
            if given and _first(given, names) is None:
                return False
            if not given and not any(_plain(name) in guesses for name in names):
                return False
        others = [*(getattr(self, role) for role in ("text_b", "id", "tags", "group")), *self.target]
        return all(_first(given, names) is not None for given in others if given)


def _given(role: str, given: Names, columns: Sequence[str], source: str) -> str:
    found = _first(given, columns)
    if found is not None:
        return found
    candidates = _candidates(given)
    near = f"; {did_you_mean(candidates[0], columns)}" if len(columns) > 3 else ""
    shown = " or ".join(candidates)
    raise HarnessError(f"{source}: no column {shown} (task.{role}); {_listed(columns)}{near}")


def _candidates(given: Names) -> list[str]:
    return [given] if isinstance(given, str) else [str(name) for name in given or ()]


def _first(given: Names, columns: Sequence[str]) -> str | None:
    """The first candidate whose columns exist."""
    for candidate in _candidates(given):
        if candidate in columns or all(_exists(part, columns) for part in candidate.split("+")):
            return candidate
    return None


def _exists(name: str, columns: Sequence[str]) -> bool:
    return name in columns or nested_in(name, columns) is not None


def nested_in(name: str, columns: Sequence[str]) -> str | None:
    """The column that a dotted name begins with, if there is one; the longest of several."""
    parts = name.split(".")
    prefixes = [".".join(parts[:n]) for n in range(len(parts) - 1, 0, -1)]
    return next((prefix for prefix in prefixes if prefix in columns), None)


def _parts(name: str, columns: Sequence[str]) -> list[str]:
    return [name] if name in columns else name.split("+")


def _free(columns: Sequence[str], resolved: Mapping[str, str], roles: Sequence[str]) -> list[str]:
    """The columns that have none of these roles."""
    used = {part for role in roles if role in resolved for part in _parts(resolved[role], columns)}
    return [c for c in columns if c not in used]


def _listed(columns: Sequence[str]) -> str:
    return f"columns: {', '.join(f'{c:.40}' for c in columns)}"


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_")


def _named(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns with these names, in the order of the names."""
    plain = {_plain(column): column for column in reversed(columns)}
    exact = {column: column for column in columns}
    return [exact.get(name) or plain[name] for name in names if name in exact or name in plain]


def _find_label(free: Sequence[str], columns: Sequence[str], source: str) -> str:
    found = _named(_LABEL, free) or _named(_LABEL_COPIES, free)[:1]
    if len(found) > 1:
        raise ambiguous(source, "which column is the label", {c: f"task.label={c}" for c in found})
    if not found:
        raise HarnessError(
            f"{source}: which column is the label? Set task.label=NAME; {_listed(columns)}{_hint(columns)}"
        )
    return found[0]


def _find_text(free: Sequence[str], text_b: str | None, columns: Sequence[str], source: str) -> str:
    found = [column for column in free if _plain(column) in _KNOWN_TEXTS]
    if text_b is not None:
        partners = [a for a, b in _known_pairs([*found, text_b]) if b == text_b]
        if len(partners) == 1:
            return partners[0]
    if len(found) == 1 and (text_b is not None or _plain(found[0]) in _TEXT):
        return found[0]
    if text_b is None and sorted(map(_plain, found)) == sorted(_JOINED):
        return "+".join(_named(_JOINED, found))
    if len(found) > 1:
        raise ambiguous(source, "which column is the text", _readings(found, text_b))
    raise HarnessError(
        f"{source}: which column is the text? Set task.text=NAME; {_listed(columns)}{_hint(columns)}"
    )


def _known_pairs(columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    for names in _PAIRS:
        pair = _named(names, columns)
        if len(pair) == 2:
            yield pair[0], pair[1]


def _readings(found: Sequence[str], text_b: str | None) -> dict[str, str]:
    """The settings for each reading of several columns of texts."""
    if text_b is not None:
        return {f"{c} and {text_b}": f"task.text={c} task.text_b={text_b}" for c in found[:_SHOWN]}
    pairs = list(_known_pairs(found)) or [(found[0], found[1])]
    out = {f"pairs of {a} and {b}": f"task.text={a} task.text_b={b}" for a, b in pairs[:_SHOWN]}
    out |= {f"{c} only": f"task.text={c}" for c in found[:_SHOWN]}
    a, b = pairs[0]
    return out | {"both joined to one text": f"task.text={a}+{b}"}


def _hint(columns: Sequence[str]) -> str:
    plain = {_plain(c) for c in columns}
    if pair := next(_known_pairs(columns), None):
        return f". For pairs: task.text={pair[0]} task.text_b={pair[1]}"
    if plain & {"tokens", "words"}:
        return ". Labelled words are read by task=ner"
    if plain & {"paragraphs", "answers"}:
        return ". Questions with answers in a text are read by task=span_qa"
    if len(columns) == 1 and any(c in columns[0] for c in ";|\t"):
        return ". Set task.delimiter when it is not a comma"
    return ". Without a header line, name the columns: task.columns=[label,text]"


def _check_roles(resolved: dict[str, str], columns: Sequence[str], source: str) -> None:
    """Refuse a column that is both text and label, or both texts."""
    label = resolved["label"]
    for role in ("text", "text_b"):
        if role in resolved and label in _parts(resolved[role], columns):
            raise HarnessError(
                f"{source}: column {label} is both the text (task.{role}) and the label (task.label); "
                f"name another column for one of them; {_listed(columns)}"
            )
    if resolved["text"] == resolved.get("text_b"):
        raise HarnessError(
            f"{source}: column {resolved['text']} is both texts of the pair; set task.text_b to the other "
            f"column; {_listed(columns)}"
        )


def target_columns(given: Names, *, texts: int) -> tuple[str, ...]:
    """``task.target`` as one column per text.

    Raises:
        HarnessError: the number of columns differs from that of texts.
    """
    names = () if not given else (given,) if isinstance(given, str) else tuple(given)
    if names and len(names) != texts:
        raise HarnessError(
            f"task.target={', '.join(names)}: expected {texts} column(s), one per text, with the index of "
            "the target word"
        )
    return names
