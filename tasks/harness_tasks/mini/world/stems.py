"""Stems, inflected forms, and names.

The ending of most names indicates their type: places end in -holm or -mere, substances in -ium or -ite.
Neutral names are bare stems; only the context indicates their type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness_tasks.mini.world.draw import Draw


def listed(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


_ONSETS = listed("b bl br d dr g gl gr h j k kl kr l m n p pl pr r s sk sm sn sp st t tr v w z")
_SINGLE = tuple(onset for onset in _ONSETS if len(onset) == 1)
_VOWELS = listed("a e i o u")
_MIDDLES = listed("b d l m n r v nd rv st")
_SINGLE_CODAS = listed("l m n p r nd st")
_CODAS = listed("l ld lm m n nd nk p rd rk rn rm sk st nt")

PERSON, PLACE, FIRM, SUBSTANCE = "PER", "LOC", "ORG", "SUB"
TYPES = (PERSON, PLACE, FIRM, SUBSTANCE)
_FIRST_ENDS = listed("a o in el is")
_LAST_ENDS = listed("sen ovan quist ander")
_PLACE_ENDS = listed("holm mere burg vik stad")
_FIRM_ENDS = listed("tex corp onics ware")
_FIRM_SECOND = listed("Guild Works Union Lines Bank")
_SUBSTANCE_ENDS = listed("ium ite ine ol")


@dataclass(frozen=True, slots=True)
class Noun:
    """A common noun."""

    singular: str
    plural: str

    @classmethod
    def of(cls, word: str) -> Noun:
        return cls(word, _with_s(word))

    def form(self, plural: bool) -> str:
        return self.plural if plural else self.singular


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb and its forms; the participle is the past form."""

    base: str
    third: str
    past: str
    ing: str

    @classmethod
    def of(cls, word: str) -> Verb:
        return cls(word, _with_s(word), f"{word}ed", f"{word}ing")

    def present(self, plural: bool) -> str:
        return self.base if plural else self.third


@dataclass(frozen=True, slots=True)
class Name:
    """A name: its words, its type, and whether its form indicates the type."""

    words: tuple[str, ...]
    type: str
    telling: bool = True

    @property
    def text(self) -> str:
        return " ".join(self.words)


def _with_s(word: str) -> str:
    if word[-1] == "y" and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word[-1] in "sxz" or word[-2:] in ("sh", "ch") else f"{word}s"


class Stems:
    """Generates stems that are all different."""

    def __init__(self, draw: Draw, *, taken: list[str]) -> None:
        self._draw = draw
        self._taken = dict.fromkeys(taken)

    def new(self) -> str:
        """A stem of one or two syllables."""
        while True:
            draw = self._draw
            word = draw.one(_ONSETS) + draw.one(_VOWELS) + draw.one(_CODAS)
            if draw.chance(0.7):
                word = draw.one(_SINGLE) + draw.one(_VOWELS) + draw.one(_MIDDLES) + draw.one(_VOWELS)
                word += draw.one(_SINGLE_CODAS)
            if self.claim(word):
                return word

    def claim(self, word: str) -> bool:
        """Mark a word as used; False if it was used before."""
        if word in self._taken:
            return False
        self._taken[word] = None
        return True

    def shaped(self, ends: Sequence[str]) -> str:
        """A new short stem with one of the endings."""
        while True:
            draw = self._draw
            word = draw.one(_ONSETS) + draw.one(_VOWELS) + draw.one(_MIDDLES)
            if ends[0] not in ("a", "ium") and draw.chance(0.5):
                word = draw.one(_ONSETS) + draw.one(_VOWELS) + draw.one(_CODAS)
            elif draw.chance(0.5):
                word += draw.one(_VOWELS) + draw.one(_MIDDLES)
            word += draw.one(ends)
            if self.claim(word):
                return word

    def first_name(self) -> str:
        return self.shaped(_FIRST_ENDS).capitalize()

    def last_name(self) -> str:
        return self.shaped(_LAST_ENDS).capitalize()

    def place(self) -> Name:
        return Name((self.shaped(_PLACE_ENDS).capitalize(),), PLACE)

    def firm(self) -> Name:
        word = self.shaped(_FIRM_ENDS).capitalize()
        second = (self._draw.one(_FIRM_SECOND),) if self._draw.chance(0.3) else ()
        return Name((word, *second), FIRM)

    def substance(self) -> Name:
        return Name((self.shaped(_SUBSTANCE_ENDS),), SUBSTANCE)

    def neutral(self) -> str:
        """A capitalised bare stem, whose type only the context indicates."""
        return self.new().capitalize()
