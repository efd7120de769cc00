"""Label schemes for entities, and their conversion to IOB2.

A label is ``O`` or a prefix and a type, ``B-creative-work``; a bare prefix has the type ``_``.

=========  ==================================================================================================
``iob1``   ``B`` only where an entity touches one of its own type before it (Ramshaw & Marcus 1995)
``iob2``   ``B`` on every first word
``bioes``  ``S`` a single word, ``E`` a last word (also ``BMES``)
``bilou``  ``U`` a single word, ``L`` a last word (Ratinov & Roth 2009)
``io``     no ``B`` at all: neighbours of one type cannot be told apart
``none``   labels without prefixes, such as parts of speech: no entities
=========  ==================================================================================================

All are read by conlleval's rule: a word continues the preceding entity if that has the same type and was not
ended (by ``E``, ``L``, ``S``, ``U``), and the word's prefix is ``I``, ``M``, ``E`` or ``L``; every other
labelled word starts an entity. So no word of an ill-formed sequence is lost. Normalised labels are IOB2.
Examples::

    words   Ana   Li    saw  New   York  Bo
    iob1    I-PER I-PER O    I-LOC I-LOC I-PER
    iob2    B-PER I-PER O    B-LOC I-LOC B-PER
    bioes   B-PER E-PER O    B-LOC E-LOC S-PER
    bilou   B-PER L-PER O    B-LOC L-LOC U-PER
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from harness.errors import HarnessError, did_you_mean

Entity = tuple[str, int, int]
"""Type, first word, word after the last one."""

OUTSIDE = "O"
PREFIXES = {
    "iob1": "BI",
    "iob2": "BI",
    "bioes": "BIESM",
    "bilou": "BILU",
    "io": "I",
}
SCHEMES = (*PREFIXES, "none")
_CANONICAL = {"L": "E", "U": "S", "M": "I"}


@dataclass(frozen=True, slots=True)
class Recognised:
    """The scheme of a data set.

    Attributes:
        scheme: one of :data:`SCHEMES`.
        ill_formed: number of labels that violate the scheme; they are read by conlleval's rule.
        note: a sentence for the record.
    """

    scheme: str
    ill_formed: int
    note: str


@cache
def split_label(label: str) -> tuple[str, str]:
    """Prefix and type; ``("", "")`` for ``O`` and ``("", label)`` for a label without a prefix."""
    if label == OUTSIDE:
        return "", ""
    prefix, _, kind = label.partition("-")
    if prefix in set("BIESLUM") and (kind or label == prefix):
        return prefix, kind or "_"
    return "", label


def recognise(labels: Iterable[Sequence[str]], *, scheme: str = "auto") -> Recognised:
    """Recognise the scheme of label sequences, or check the given one.

    Raises:
        HarnessError: an unknown scheme, labels that do not belong to it, or labels of two schemes.
    """
    if scheme not in ("auto", *SCHEMES):
        raise HarnessError(f"task.scheme={scheme}: {did_you_mean(scheme, ('auto', *SCHEMES))}")
    sequences = [list(s) for s in labels]
    known = {label for s in sequences for label in s}
    found = scheme if scheme != "auto" else _from_label_set(known) or _iob1_or_iob2(sequences)
    if found == "none":
        return Recognised("none", 0, _note(found, scheme, 0, f"{len(known)} plain labels, no entities"))
    _check(known, found, given=scheme != "auto")
    ill = sum(_ill_formed(s, found) for s in sequences)
    return Recognised(found, ill, _note(found, scheme, ill, "scored as IOB2"))


def _note(found: str, asked: str, ill: int, rest: str) -> str:
    how = "recognised" if asked == "auto" else "as given"
    tail = f"; {ill} ill-formed label(s) read as conlleval reads them" if ill else ""
    return f"label scheme {found} ({how}), {rest}{tail}"


def _from_label_set(known: set[str]) -> str | None:
    """The scheme, if the set of labels determines it; None if there are only B and I."""
    prefixes = {split_label(label)[0] for label in known if label != OUTSIDE}
    typed = any(split_label(label)[0] and "-" in label for label in known)
    if "" in prefixes and not typed:  # a bare letter such as "B" among parts of speech is a plain label
        return "none"
    if prefixes & set("LU"):
        return "bilou"
    if prefixes & set("ESM"):
        return "bioes"
    return "io" if prefixes and "B" not in prefixes else None


def _iob1_or_iob2(sequences: Iterable[Sequence[str]]) -> str:
    """The scheme with fewer violations; both are read alike."""
    kept = list(sequences)
    iob1, iob2 = (sum(_ill_formed(s, scheme) for s in kept) for scheme in ("iob1", "iob2"))
    return "iob1" if iob1 < iob2 else "iob2"


def _check(known: set[str], scheme: str, *, given: bool) -> None:
    wrong = sorted(
        label for label in known if label != OUTSIDE and _prefix(label, scheme) not in PREFIXES[scheme]
    )
    if not wrong:
        return
    claim = f"task.scheme={scheme}" if given else f"the labels look like {scheme}"
    which = f"{', '.join(map(repr, wrong[:5]))} {'is' if len(wrong) == 1 else 'are'}"
    raise HarnessError(
        f"{claim}, but {which} neither O nor one of "
        f"{', '.join(p + '-TYPE' for p in PREFIXES[scheme])}; correct the labels, or set task.scheme (none = "
        "plain labels such as parts of speech) or task.label_column"
    )


def _prefix(label: str, scheme: str) -> str:
    """The label's prefix, never "" (which every string contains). With ``io`` a bare type counts as
    inside."""
    return split_label(label)[0] or ("I" if scheme == "io" else "?")


def _ill_formed(labels: Sequence[str], scheme: str) -> int:
    """Number of labels of a sequence that violate the scheme at their position."""
    if scheme == "io":
        return 0
    parts = [canonical(label) for label in labels]
    before, after = [("", ""), *parts[:-1]], [*parts[1:], ("", "")]
    return sum(map(_RULES[scheme], parts, before, after))


def _breaks_iob1(here: tuple[str, str], before: tuple[str, str], after: tuple[str, str]) -> bool:
    return here[0] == "B" and before[1] != here[1]


def _breaks_iob2(here: tuple[str, str], before: tuple[str, str], after: tuple[str, str]) -> bool:
    return here[0] == "I" and before[1] != here[1]


def _breaks_bioes(here: tuple[str, str], before: tuple[str, str], after: tuple[str, str]) -> bool:
    opened = before[0] in ("B", "I") and before[1] == here[1]
    closed = after[0] in ("I", "E") and after[1] == here[1]
    return (here[0] in ("I", "E") and not opened) or (here[0] in ("B", "I") and not closed)


_RULES = {"iob1": _breaks_iob1, "iob2": _breaks_iob2, "bioes": _breaks_bioes, "bilou": _breaks_bioes}


@cache
def canonical(label: str, *, bare: bool = False) -> tuple[str, str]:
    """Prefix (B, I, E, S, or "" outside) and type; with ``bare`` a bare type counts as inside."""
    prefix, kind = split_label(label)
    if not prefix:
        return ("I", kind) if bare and kind else ("", "")
    return _CANONICAL.get(prefix, prefix), kind


def entities(labels: Sequence[str], *, bare: bool = False) -> list[Entity]:
    """Entities by conlleval's rule, in order.

    Example: B-PER I-PER O I-LOC I-PER gives (PER, 0, 2), (LOC, 3, 4), (PER, 4, 5): I-LOC starts an entity,
        and
    I-PER does not continue one of another type.

    Args:
        labels: one label per word, of any scheme but ``none``.
        bare: a label without a prefix counts as inside (``io`` written as ``PER``).
    """
    found: list[Entity] = []
    start, prefix, kind = 0, "", ""
    for at, label in enumerate([*labels, OUTSIDE]):
        new_prefix, new_kind = canonical(label, bare=bare)
        if prefix in ("B", "I") and new_prefix in ("I", "E") and new_kind == kind:
            prefix = new_prefix
            continue
        if prefix:
            found.append((kind, start, at))
        start, prefix, kind = at, new_prefix, new_kind
    return found


def strict_entities(labels: Sequence[str]) -> list[Entity]:
    """Entities of an IOB2 sequence that start with ``B``, as in seqeval's strict mode: an ``I`` that
    continues no entity is ignored."""
    return [e for e in entities(labels) if labels[e[1]].startswith("B")]


def to_iob2(labels: Sequence[str], scheme: str) -> list[str]:
    """Convert a sequence of any scheme to IOB2 (``none`` is returned unchanged)."""
    if scheme == "none":
        return list(labels)
    return from_entities(entities(labels, bare=scheme == "io"), len(labels))


def from_entities(spans: Iterable[Entity], length: int, *, scheme: str = "iob2") -> list[str]:
    """Labels of ``length`` words in ``iob2`` or ``bioes``."""
    out = [OUTSIDE] * length
    for kind, start, end in spans:
        out[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
        if scheme == "bioes":
            out[end - 1] = f"{'S' if end - start == 1 else 'E'}-{kind}"
    return out


def bridge(labels: Sequence[str | None]) -> list[str | None]:
    """Fill missing labels (None) inside an entity: ``B-X None I-X`` becomes ``B-X I-X I-X``."""
    out = list(labels)
    at = 0
    while at < len(out):
        end = at
        while end < len(out) and out[end] is None:
            end += 1
        before, after = (out[at - 1] if at else None), (out[end] if end < len(out) else None)
        inside = after is not None and after.startswith("I-") and before in (after, f"B-{after[2:]}")
        if end > at and inside:
            out[at:end] = [after] * (end - at)
        at = end + 1
    return out
