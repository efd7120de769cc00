"""Data with labels per character, such as KLUE's (Park et al. 2021), read as words and scored as characters.

Gold and predictions are labels of the non-blank characters, so that results with different tokens are
comparable. ``task.characters`` defines a token:

=========  ==================================================================================================
``each``   one character; no entity is lost, but the characters are separated by blanks in the text
``words``  one word of the running text, split at blanks and punctuation. A Korean particle is written
together
           with its noun, so an entity often ends within a word: the label of an entity's last word gives the
           number of characters after the entity (``B-PS+1``). An entity that starts within a word, or shares
           a word with another, cannot be represented: it is counted, and scored as missed.
=========  ==================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.data.text import Text
from harness.errors import HarnessError, did_you_mean
from harness_tasks.tagging.schemes import OUTSIDE, Entity, entities

READINGS = ("each", "words")
MAX_SUFFIX = 5
"""Maximum number of characters after an entity in its last word; particles are shorter."""
_BEHIND = re.compile(r"(.+)\+(\d+)")


@dataclass(slots=True)
class ConversionLoss:
    """Entities that labels of words cannot represent: ``entities`` in total; ``inside_words`` start or end
    within a word; ``lost`` are not recovered from the labels of words."""

    entities: int = 0
    inside_words: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Characters:
    """Conversion between labels of characters and labels of tokens.

    Raises:
        HarnessError: an unknown kind of token.
    """

    reading: str
    loss: dict[str, ConversionLoss] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.reading not in READINGS:
            raise HarnessError(f"task.characters={self.reading}: {did_you_mean(self.reading, READINGS)}")

    def text(self, characters: Sequence[str]) -> Text:
        """The running text of the characters, or each non-blank character as a word."""
        if self.reading == "words":
            return Text.from_string("".join(characters))
        return Text.from_words([c for c in characters if not c.isspace()])

    def to_tokens(self, text: Text, labels: Sequence[str]) -> list[str]:
        """One label per word of ``text`` from the IOB2 labels of its non-blank characters."""
        if self.reading == "each":
            return list(labels)
        return to_words(_bounds(text), entities(labels))

    def to_characters(self, text: Text, labels: Sequence[str]) -> list[str]:
        """IOB2 labels of the non-blank characters from those of the words of ``text``."""
        if self.reading == "each":
            return list(labels)
        out = [OUTSIDE] * sum(not c.isspace() for c in text.text)
        for (start, end), label in zip(_bounds(text), labels, strict=True):
            match = _BEHIND.fullmatch(label)
            name, suffix = (match[1], int(match[2])) if match else (label, 0)
            if name != OUTSIDE:
                last = max(start + 1, end - suffix)
                inside = f"I{name[1:]}"
                out[start:last] = [name] + [inside] * (last - start - 1)
        return out

    def count(self, role: str, text: Text, labels: Sequence[str]) -> None:
        """Add an example of a split to :attr:`loss`."""
        found, loss = entities(labels), self.loss.setdefault(role, ConversionLoss())
        bounds = _bounds(text) if self.reading == "words" else []
        starts, ends = {a for a, _ in bounds}, {b for _, b in bounds}
        back = set(entities(self.to_characters(text, self.to_tokens(text, labels))))
        loss.entities += len(found)
        if bounds:
            loss.inside_words += sum(a not in starts or b not in ends for _, a, b in found)
        loss.lost += sum(e not in back for e in found)

    def note(self) -> str:
        """A sentence about the lost entities over all splits and in test."""
        if self.reading == "each":
            return "labels of characters, one token per character: no entity is lost"
        total = sum(x.entities for x in self.loss.values())
        lost = sum(x.lost for x in self.loss.values())
        test = self.loss.get("test", ConversionLoss())
        return (
            f"labels of characters, words as tokens: {lost} of {total} entities cannot be represented by "
            f"labels of words and are scored as missed ({test.lost} of {test.entities} in test)"
        )

    def report(self) -> dict[str, float]:
        """Counts for the record."""
        out: dict[str, float] = {}
        for role, loss in self.loss.items():
            out[f"{role}_entities"] = loss.entities
            out[f"{role}_entities_inside_words"] = loss.inside_words
            out[f"{role}_entities_lost"] = loss.lost
        return out


def to_words(bounds: Sequence[tuple[int, int]], found: Sequence[Entity]) -> list[str]:
    """Labels of words from entities over characters; see the module.

    Example: words of characters [(0, 2), (2, 5)] and an entity PS over [0, 4) give B-PS I-PS+1.

    Args:
        bounds: character span of each word, blanks not counted.
        found: entities over the same characters, in order.
    """
    labels = [OUTSIDE] * len(bounds)
    for kind, start, end in found:
        words = [i for i, (a, b) in enumerate(bounds) if a < end and b > start]
        if not words or bounds[words[0]][0] != start or any(labels[i] != OUTSIDE for i in words):
            continue
        suffix = bounds[words[-1]][1] - end
        if not 0 <= suffix <= MAX_SUFFIX:
            continue
        for position, i in enumerate(words):
            labels[i] = f"{'I' if position else 'B'}-{kind}"
        if suffix:
            labels[words[-1]] += f"+{suffix}"
    return labels


def _bounds(text: Text) -> list[tuple[int, int]]:
    """Spans of the words, counted in non-blank characters."""
    before, n = [], 0
    for c in text.text:
        before.append(n)
        n += not c.isspace()
    before.append(n)
    return [(before[a], before[b]) for a, b in text.spans]
