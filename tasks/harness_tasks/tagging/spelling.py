"""Spellings of entity labels, and their conversion to ``B-TYPE``.

Besides ``B-PER`` data are published with another separator (``B_PER``), the prefix behind (``PER-B``), in
lower case (``b-per``), or with the brackets of OntoNotes (``(PERSON*``, ``*``, ``*)``). A spelling is
recognised from the set of all labels and logged; ``task.label_style`` gives it. Labels that may be entities
or not are refused, as is a label such as ``0`` or ``OTHER`` in the place of ``O`` (``task.outside_label``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.data.reading.log import ReadLog, ambiguous
from harness.errors import HarnessError, did_you_mean
from harness_tasks.tagging.columns import Sentence
from harness_tasks.tagging.schemes import OUTSIDE, Recognised, recognise, split_label
from harness_tasks.tagging.sources import TaggedData, check_entities, check_plain, check_sentences

Parts = Mapping[str, Sequence[Sentence]]
LETTERS = "BIESLUM"
BRACKETS = "brackets"
CANONICAL = "B-TYPE"
OUTSIDE_LIKE = {"o", "0", "_", "-", "*", "out", "outside", "other", "others", "none", "null", "nan", "о", "ο"}
"""Labels, in lower case, that may stand for ``O``; the last two are Cyrillic and Greek."""
ALL_SPLITS = "all splits"
_BRACKET = re.compile(r"(?:\(([^()*\s|]+))?\*(\)?)|\(([^()*\s|]+)(\))")


@dataclass(frozen=True, slots=True)
class LabelStyle:
    """A spelling of entity labels.

    Attributes:
        separator: between prefix and type.
        behind: whether the prefix follows the type.
        lower: whether prefixes and ``o`` are in lower case.
    """

    separator: str
    behind: bool = False
    lower: bool = False

    @property
    def name(self) -> str:
        """Name in ``task.label_style``."""
        name = f"TYPE{self.separator}B" if self.behind else f"B{self.separator}TYPE"
        return name.lower() if self.lower else name

    def split(self, label: str) -> tuple[str, str] | None:
        """Prefix in upper case and type; ("", "") for ``O``; None for a label in another spelling."""
        if label == OUTSIDE or (self.lower and label == "o"):
            return "", ""
        a, found, b = label.rpartition(self.separator) if self.behind else label.partition(self.separator)
        prefix, kind = (b, a) if self.behind else (a, b)
        letters = LETTERS.lower() if self.lower else LETTERS
        if self.name == "b-type" and len(label) == 1 and label in letters:
            return label.upper(), "_"
        return (prefix.upper(), kind) if found and kind and len(prefix) == 1 and prefix in letters else None


STYLES = {
    style.name: style
    for lower in (False, True)
    for behind in (False, True)
    for style in (LabelStyle(separator, behind, lower) for separator in "-_:/.|")
}


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """What the configuration says about the labels.

    Attributes:
        scheme: ``auto`` or one of :data:`harness_tasks.tagging.schemes.SCHEMES`.
        style: one of :data:`STYLES`, or ``brackets``; None = recognised.
        outside: labels that stand for ``O``.

    Raises:
        HarnessError: an unknown style.
    """

    scheme: str = "auto"
    style: str | None = None
    outside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = (*STYLES, BRACKETS)
        if self.style is not None and self.style not in names:
            raise HarnessError(f"task.label_style={self.style}: {did_you_mean(self.style, names)}")
        if self.scheme == "none" and (self.style or self.outside):
            raise HarnessError("task.scheme=none: plain labels have no task.label_style and no outside_label")


def recognise_labels(
    data: TaggedData, options: LabelOptions, log: ReadLog
) -> tuple[dict[str, list[Sentence]], Recognised]:
    """Return the sentences with labels as ``B-TYPE`` and ``O`` (or plain ones), and the scheme.

    Raises:
        HarnessError: as :func:`normalise_labels`, or no entities in train.
    """
    check_sentences(data.splits, log)
    asked = options.scheme
    if data.plain and asked == "auto":
        options = LabelOptions("none")
    sentences = normalise_labels(data.splits, options, log)
    found = recognise((s.labels for part in sentences.values() for s in part), scheme=options.scheme)
    log.fact(ALL_SPLITS, "scheme", found.scheme, given=asked != "auto")
    by_column = asked != options.scheme
    log.note(found.note.replace("as given", "a column of CoNLL-U") if by_column else found.note)
    log.add("ill_formed_labels", found.ill_formed)
    (check_plain if found.scheme == "none" else check_entities)(sentences, log)
    return sentences, found


def normalise_labels(parts: Parts, options: LabelOptions, log: ReadLog) -> dict[str, list[Sentence]]:
    """Return the sentences with labels spelled ``B-TYPE`` and ``O``; plain labels are unchanged.

    Args:
        parts: sentences by split; those whose labels are spelled differently are changed in place.
        options: what is given.
        log: receives the recognised spelling, and sentences that are skipped.

    Raises:
        HarnessError: labels that may be entities or not, or that belong to no spelling.
    """
    out = {role: list(part) for role, part in parts.items()}
    if options.scheme == "none":
        return out
    _read_outside(out, options.outside, log)
    counts = Counter(label for part in out.values() for s in part for label in s.labels)
    style = options.style or _recognise(counts, options.scheme, out)
    log.fact(ALL_SPLITS, "label style", style or "plain", given=options.style is not None)
    if style == BRACKETS:
        log.note("labels are brackets as in (PERSON*, *, *) and were read as spans")
        return {role: [s for s in part if _read_brackets(s, log)] for role, part in out.items()}
    if style is not None and style != CANONICAL:
        _respell(out, STYLES[style], counts)
        log.note(f"labels are spelled {style} and were read as {CANONICAL}")
    if style is not None:
        _warn_of_case(counts, STYLES[style], log)
    return out


def _read_outside(parts: Parts, outside: Sequence[str], log: ReadLog) -> None:
    if not outside:
        return
    found = 0
    for s in (s for part in parts.values() for s in part):
        if not set(outside).isdisjoint(s.labels):
            found += sum(label in outside for label in s.labels)
            s.labels = [OUTSIDE if label in outside else label for label in s.labels]
    if not found:
        known = Counter(label for part in parts.values() for s in part for label in s.labels)
        shown = ", ".join(label for label, _ in known.most_common(8))
        raise HarnessError(
            f"task.outside_label={','.join(outside)}: no such label; the most frequent: {shown}"
        )
    log.given(ALL_SPLITS, "outside label", ", ".join(outside))


def _recognise(counts: Counter[str], scheme: str, parts: Parts) -> str | None:
    """The spelling of the labels; None for plain labels."""
    others = set(counts) - {OUTSIDE}
    if not others or all(split_label(label)[0] for label in others):
        return CANONICAL
    if any(label[:1] == "(" and len(label) > 1 for label in others):
        return _recognise_brackets(set(counts), parts)
    whole = [name for name, style in STYLES.items() if all(map(style.split, counts)) and name != CANONICAL]
    if len(whole) > 1:
        raise _unclear(counts, parts, {name: f"task.label_style={name}" for name in whole})
    if whole:
        if OUTSIDE in counts or "o" in counts or scheme != "auto" or _opened_and_continued(counts, whole[0]):
            return whole[0]
        entity = {"entities": f"task.label_style={whole[0]}"}
        raise _unclear(counts, parts, {**entity, "plain labels": "task.scheme=none"})
    _refuse_misfits(counts, scheme, parts)
    if scheme == "auto":
        _refuse_bare_types(counts, parts)
    return CANONICAL if any(map(_typed, others)) or scheme != "auto" else None


def _recognise_brackets(known: set[str], parts: Parts) -> str:
    wrong = [label for label in known if not _BRACKET.fullmatch(label)]
    if wrong or not any("*" in label for label in known):
        label = sorted(wrong or [x for x in known if x[:1] == "("])[0]
        raise HarnessError(
            f"{_location(parts, label)}: label {label!r} looks like brackets, but the labels are not those "
            "of spans ((PERSON*, *, *)); set task.label_column, or task.scheme=none for plain labels"
        )
    return BRACKETS


def _typed(label: str) -> bool:
    return "-" in label and split_label(label)[0] != ""


def _opened_and_continued(counts: Iterable[str], style: str) -> bool:
    """Whether a type occurs with two prefixes."""
    prefixes = defaultdict(set)
    for label in counts:
        if parts := STYLES[style].split(label):
            prefixes[parts[1]].add(parts[0])
    return any(len(found) > 1 for found in prefixes.values())


def _refuse_misfits(counts: Counter[str], scheme: str, parts: Parts) -> None:
    """Refuse labels beside those of entities: ``0`` for ``O``, or any other."""
    others = set(counts) - {OUTSIDE}
    if scheme == "io":
        misfits = {x for x in others if x.lower() in OUTSIDE_LIKE}
        fit, style = others - misfits, CANONICAL
    else:
        fits = {name: {x for x in others if STYLES[name].split(x)} for name in STYLES}
        fits[CANONICAL] |= {x for x in others if split_label(x)[0] and any(map(_typed, others))}
        style = CANONICAL if any(map(_typed, others)) else max(fits, key=lambda name: len(fits[name]))
        fit, misfits = fits[style] - {"o"}, others - fits[style]
        outside = OUTSIDE in counts or any(x.lower() in OUTSIDE_LIKE for x in others)
        sure = 2 * len(fit) >= len(others) and (outside or _opened_and_continued(others, style))
        if not fit or (style != CANONICAL and not sure):
            return
    like = sorted((x for x in misfits if x.lower() in OUTSIDE_LIKE), key=lambda x: -counts[x])
    if like:
        raise HarnessError(
            f"{_location(parts, like[0])}: label {like[0]!r} beside entities such as {_some(fit)}: if "
            f"it means O, set task.outside_label={_setting(like)}; otherwise correct it"
        )
    if misfits:
        label = min(misfits, key=lambda x: (-counts[x], x))
        raise HarnessError(
            f"{_location(parts, label)}: label {label!r} is neither O nor {style}, as {_some(fit)}; correct "
            "it, or set task.scheme=none (plain labels such as parts of speech) or task.label_column"
        )


def _refuse_bare_types(counts: Counter[str], parts: Parts) -> None:
    """Refuse labels without prefixes of which most are ``O``, or what may stand for it."""
    first = counts.most_common(1)[0][0]
    if len(counts) < 2 or (first != OUTSIDE and first.lower() not in OUTSIDE_LIKE):
        return
    outside = "" if first == OUTSIDE else f"task.outside_label={_setting([first])} "
    readings = {"entities without B and I": f"{outside}task.scheme=io", "plain labels": "task.scheme=none"}
    raise _unclear(counts, parts, readings)


def _setting(labels: Sequence[str]) -> str:
    quoted = [label if label.isalnum() else f"'{label}'" for label in labels]
    return quoted[0] if len(quoted) == 1 else f"[{','.join(quoted)}]"


def _unclear(counts: Counter[str], parts: Parts, readings: Mapping[str, str]) -> HarnessError:
    shown = ", ".join(label for label, _ in counts.most_common(5))
    where = _location(parts, counts.most_common(2)[-1][0])
    return ambiguous(where, f"are {shown} entities or plain labels", readings)


def _some(labels: Iterable[str]) -> str:
    return ", ".join(sorted(labels)[:3])


def _location(parts: Parts, label: str) -> str:
    """File and line of the first word with this label."""
    for s in (s for part in parts.values() for s in part):
        if label in s.labels:
            return s.where(s.labels.index(label))
    return "labels"


def _respell(parts: Parts, style: LabelStyle, counts: Iterable[str]) -> None:
    new = {}
    for label in counts:
        split = style.split(label)
        if split is None:
            raise HarnessError(
                f"{_location(parts, label)}: label {label!r} is neither O nor {style.name}; correct it or "
                "task.label_style"
            )
        prefix, kind = split
        new[label] = f"{prefix}-{kind}" if prefix else OUTSIDE
    for s in (s for part in parts.values() for s in part):
        s.labels = [new[label] for label in s.labels]


def _read_brackets(sentence: Sentence, log: ReadLog) -> bool:
    """Replace brackets by IOB2 labels; False for a sentence that is skipped."""
    kind = ""
    out = []
    for i, label in enumerate(sentence.labels):
        found = _BRACKET.fullmatch(label)
        new, closes = (found[1] or found[3], found[2] or found[4]) if found else (None, None)
        problem = "is no bracket" if found is None else ""
        if not problem and (new and kind):
            problem = f"opens a span inside {kind}; nested entities cannot be read"
        elif not problem and not (new or kind) and closes:
            problem = "closes a span that was not opened"
        if problem:
            log.skip(
                sentence.where(i), HarnessError(f"{sentence.where(i)}: label {label!r} {problem}; correct it")
            )
            return False
        out.append(f"B-{new}" if new else f"I-{kind}" if kind else OUTSIDE)
        kind = "" if closes else (new or kind)
    if kind:
        where = sentence.where(len(out) - 1)
        log.skip(
            where, HarnessError(f"{where}: the sentence ends inside the span {kind}; correct its brackets")
        )
        return False
    sentence.labels = out
    return True


def _warn_of_case(counts: Iterable[str], style: LabelStyle, log: ReadLog) -> None:
    kinds = defaultdict(set)
    for label in counts:
        if (split := style.split(label)) and split[1]:
            kinds[split[1].casefold()].add(split[1])
    for names in kinds.values():
        if len(names) > 1:
            log.warn(f"entity types that differ in case only: {', '.join(sorted(names))}")
