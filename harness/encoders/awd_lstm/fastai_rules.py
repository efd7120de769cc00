"""fastai's rules from text to tokens, each token with the characters of the text it stands for.

The rules, in their order (Howard & Gugger 2020, "fastai: a layered API for deep learning", section 4.3):

================  ====================================================================================
``fix_html``      leftovers of HTML and of corpus preparation become the characters they mean
``rep``           three or more of one character: ``xxrep 4 !``
``wrep``          three or more of one word: ``xxwrep 3 very``
``spec_spaces``   blanks around ``/ # \\``
``spaces``        one blank for several
``all_caps``      words in capitals: lower case with ``xxup`` before
``maj``           words with a first capital: lower case with ``xxmaj`` before
``lowercase``     everything else in lower case, no blanks at the ends
================  ====================================================================================

Tokens are then made by :mod:`harness.encoders.awd_lstm.english_tokens`. A marker (``xxmaj``, ``xxup``, ``xxrep`` and
``xxwrep`` with their number) stands for the characters of the token it belongs to.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from harness.encoders.awd_lstm.english_tokens import english_tokens

UNKNOWN, PAD, BOS, UP, MAJ, REP, WREP = "xxunk", "xxpad", "xxbos", "xxup", "xxmaj", "xxrep", "xxwrep"

Origin = tuple[int, int, bool]
"""First and last character (exclusive) of the source, and whether it is part of a marker."""

_HTML = (
    ("#39;", "'"), ("amp;", "&"), ("#146;", "'"), ("nbsp;", " "), ("#36;", "$"), ("\\n", "\n"),
    ("quot;", "'"), ("<br />", "\n"), ('\\"', '"'), ("<unk>", UNKNOWN), (" @.@ ", "."), (" @-@ ", "-"),
    ("...", " …"),
)  # fmt: skip
_ENTITY = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)")
_SAME_CHARACTER = re.compile(r"(\S)\1{2,}")
_SAME_WORD = re.compile(r"(?:\s|^)(\w+)(?:\s+\1){2,}(\s|\W|$)")
_SPACED = re.compile(r"[/#\\]")
_BLANKS = re.compile(r" {2,}")
_CAPITALS = re.compile(r"(?<!\S)[A-Z]+[^a-z\s]*(?!\S)")
_CAPITAL = re.compile(r"(?<!\S)[A-Z][^A-Z\s]*(?!\S)")


@dataclass(frozen=True, slots=True)
class Token:
    """A token, the characters ``start`` to ``end`` of the source, and whether it is a marker."""

    text: str
    start: int
    end: int
    marker: bool = False


@dataclass(frozen=True, slots=True)
class _Made:
    """New text that stands for the characters ``start`` to ``end`` of the text being rewritten."""

    text: str
    start: int
    end: int
    marker: bool = False


Part = _Made | tuple[int, int]
"""New text, or the span of text that stays."""


@dataclass(frozen=True, slots=True)
class _Tracked:
    """A text under rewriting and where each of its characters comes from."""

    text: str
    origin: list[Origin]

    def rewrite(self, pattern: re.Pattern[str], make: Callable[[re.Match[str]], Iterable[Part]]) -> _Tracked:
        """Replace every match by what ``make`` makes of it."""
        text: list[str] = []
        origin: list[Origin] = []
        at = 0
        for match in pattern.finditer(self.text):
            for part in ((at, match.start()), *make(match)):
                if isinstance(part, _Made):
                    text.append(part.text)
                    origin += [self._span(part)] * len(part.text)
                else:
                    text.append(self.text[slice(*part)])
                    origin += self.origin[slice(*part)]
            at = match.end()
        if not text:
            return self
        return _Tracked("".join(text) + self.text[at:], origin + self.origin[at:])

    def lower(self) -> _Tracked:
        """In lower case, without blanks at the ends; some characters become two."""
        low, origin = self.text.lower(), self.origin
        if len(low) != len(self.text):
            origin = [o for c, o in zip(self.text, origin, strict=True) for _ in c.lower()]
        start = len(low) - len(low.lstrip())
        stop = len(low.rstrip())
        return _Tracked(low[start:stop], origin[start:stop])

    def _span(self, part: _Made) -> Origin:
        if part.start < part.end:
            return self.origin[part.start][0], self.origin[part.end - 1][1], part.marker
        here = self.origin[part.start - 1][1] if part.start else 0
        return here, here, part.marker


def fastai_tokens(text: str) -> list[Token]:
    """The tokens of ``text``, without ``xxbos`` at the start. A token of blanks is written ``▁`` for each
    ordinary one."""
    tracked = _normalised(text)
    out = []
    for start, end in english_tokens(tracked.text):
        spans = tracked.origin[start:end]
        token = tracked.text[start:end].replace(" ", "▁")
        out.append(Token(token, spans[0][0], max(s[1] for s in spans), spans[0][2]))
    return _placed(out)


def _placed(tokens: list[Token]) -> list[Token]:
    """Markers over the characters of the token they belong to."""
    for i in range(len(tokens) - 2, -1, -1):
        token, after = tokens[i], tokens[i + 1]
        if token.marker:
            tokens[i] = Token(token.text, after.start, after.end, True)
    return tokens


def _normalised(text: str) -> _Tracked:
    tracked = _fix_html(_Tracked(text, [(i, i + 1, False) for i in range(len(text))]))
    tracked = tracked.rewrite(_SAME_CHARACTER, _repeated_character)
    tracked = tracked.rewrite(_SAME_WORD, _repeated_word)
    tracked = tracked.rewrite(_SPACED, _spaced)
    tracked = tracked.rewrite(_BLANKS, lambda m: [(m.start(), m.start() + 1)])
    tracked = tracked.rewrite(_CAPITALS, lambda m: _lowered(m, UP))
    tracked = tracked.rewrite(_CAPITAL, lambda m: _lowered(m, MAJ))
    return tracked.lower()


def _fix_html(tracked: _Tracked) -> _Tracked:
    for old, new in _HTML:
        if old in tracked.text:
            made = re.compile(re.escape(old))
            tracked = tracked.rewrite(made, lambda m, new=new: [_Made(new, *m.span())])  # type: ignore[misc]
    return tracked.rewrite(_ENTITY, _entity) if "&" in tracked.text else tracked


def _entity(match: re.Match[str]) -> list[Part]:
    """``&amp;`` and its kind; letters after an entity without its semicolon stay what they are."""
    old, new = match.group(), html.unescape(match.group())
    same = 0
    while same < min(len(old), len(new)) and old[-1 - same] == new[-1 - same]:
        same += 1
    end = match.end() - same
    made: list[Part] = [_Made(new[: len(new) - same], match.start(), end)] if end > match.start() else []
    return [*made, (end, match.end())]


def _repeated_character(match: re.Match[str]) -> list[Part]:
    start, end = match.span()
    marker = f" {REP} {end - start} "
    return [_Made(marker, start, end, True), _Made(match[1], start, end), _Made(" ", end, end)]


def _repeated_word(match: re.Match[str]) -> list[Part]:
    start, end = match.start(1), match.start(2)
    times = len(match.string[start:end].split())
    word = [_Made(f" {WREP} {times} ", start, end, True), _Made(match[1], start, end)]
    return [*word, _Made(" ", end, end), match.span(2)]


def _spaced(match: re.Match[str]) -> list[Part]:
    start, end = match.span()
    return [_Made(" ", start, start), (start, end), _Made(" ", end, end)]


def _lowered(match: re.Match[str], marker: str) -> list[Part]:
    start, end = match.span()
    before: list[Part] = [_Made(f"{marker} ", start, end, True)] if end - start > 1 else []
    low: str | list[str] = match.group().lower()
    if len(low) != end - start:  # some have a lower case of two characters
        low = [c.lower() for c in match.group()]
    return before + [_Made(c, start + i, start + i + 1) for i, c in enumerate(low)]
