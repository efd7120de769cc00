"""fastai's rules from text to tokens; each token has the span of the characters that it represents.

The rules, in their order (Howard & Gugger 2020, "fastai: a layered API for deep learning", section 4.3):

================  ====================================================================================
``fix_html``      HTML entities and corpus artefacts become the characters that they represent
``rep``           three or more repetitions of a character: ``xxrep 4 !``
``wrep``          three or more repetitions of a word: ``xxwrep 3 very``
``spec_spaces``   spaces around ``/ # \\``
``spaces``        one space instead of several
``all_caps``      upper-case words: lower case, preceded by ``xxup``
``maj``           capitalised words: lower case, preceded by ``xxmaj``
``lowercase``     everything else in lower case, stripped
================  ====================================================================================

:mod:`harness.encoders.awd_lstm.english_tokens` then splits the text. A marker (``xxmaj``, ``xxup``, and
``xxrep`` and ``xxwrep`` with their count) has the span of the token that it precedes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from harness.encoders.awd_lstm.english_tokens import english_tokens

UNKNOWN, PAD, BOS, UP, MAJ, REP, WREP = "xxunk", "xxpad", "xxbos", "xxup", "xxmaj", "xxrep", "xxwrep"

Origin = tuple[int, int, bool]
"""First and last character (exclusive) in the source, and whether the character belongs to a marker."""

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
class FastaiToken:
    """A token, its characters ``start`` to ``end`` in the source, and whether it is a marker."""

    text: str
    start: int
    end: int
    marker: bool = False


@dataclass(frozen=True, slots=True)
class _Replacement:
    """New text for the characters ``start`` to ``end`` of the text being rewritten."""

    text: str
    start: int
    end: int
    marker: bool = False


Part = _Replacement | tuple[int, int]
"""New text, or the span of unchanged text."""


@dataclass(frozen=True, slots=True)
class _TrackedText:
    """A text during rewriting, with the origin of each of its characters.

    Example: "AB" after ``all_caps`` is "xxup ab": the origin of the first five characters is (0, 2, True),
        that of "a"
    is (0, 1, False) and that of "b" (1, 2, False).
    """

    text: str
    origin: list[Origin]

    def rewrite(
        self, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], Iterable[Part]]
    ) -> _TrackedText:
        """Replace every match by the parts that ``replace`` returns for it."""
        text: list[str] = []
        origin: list[Origin] = []
        at = 0
        for match in pattern.finditer(self.text):
            for part in ((at, match.start()), *replace(match)):
                if isinstance(part, _Replacement):
                    text.append(part.text)
                    origin += [self._span(part)] * len(part.text)
                else:
                    text.append(self.text[slice(*part)])
                    origin += self.origin[slice(*part)]
            at = match.end()
        if not text:
            return self
        return _TrackedText("".join(text) + self.text[at:], origin + self.origin[at:])

    def lower(self) -> _TrackedText:
        """Convert to lower case and strip; the lower case of some characters has two characters."""
        low, origin = self.text.lower(), self.origin
        if len(low) != len(self.text):
            origin = [o for c, o in zip(self.text, origin, strict=True) for _ in c.lower()]
        start = len(low) - len(low.lstrip())
        stop = len(low.rstrip())
        return _TrackedText(low[start:stop], origin[start:stop])

    def _span(self, part: _Replacement) -> Origin:
        if part.start < part.end:
            return self.origin[part.start][0], self.origin[part.end - 1][1], part.marker
        position = self.origin[part.start - 1][1] if part.start else 0
        return position, position, part.marker


def fastai_tokens(text: str) -> list[FastaiToken]:
    """Return the tokens of ``text``, without ``xxbos``. In tokens of spaces, each space is written as
    ``▁``."""
    tracked = _normalised(text)
    out = []
    for start, end in english_tokens(tracked.text):
        spans = tracked.origin[start:end]
        token = tracked.text[start:end].replace(" ", "▁")
        out.append(FastaiToken(token, spans[0][0], max(s[1] for s in spans), spans[0][2]))
    return _with_marker_spans(out)


def _with_marker_spans(tokens: list[FastaiToken]) -> list[FastaiToken]:
    """Give each marker the span of the token that follows it, from right to left since markers may be
    chained."""
    for i in range(len(tokens) - 2, -1, -1):
        token, after = tokens[i], tokens[i + 1]
        if token.marker:
            tokens[i] = FastaiToken(token.text, after.start, after.end, True)
    return tokens


def _normalised(text: str) -> _TrackedText:
    tracked = _fix_html(_TrackedText(text, [(i, i + 1, False) for i in range(len(text))]))
    tracked = tracked.rewrite(_SAME_CHARACTER, _repeated_character)
    tracked = tracked.rewrite(_SAME_WORD, _repeated_word)
    tracked = tracked.rewrite(_SPACED, _spaced)
    tracked = tracked.rewrite(_BLANKS, lambda m: [(m.start(), m.start() + 1)])
    tracked = tracked.rewrite(_CAPITALS, lambda m: _lowered(m, UP))
    tracked = tracked.rewrite(_CAPITAL, lambda m: _lowered(m, MAJ))
    return tracked.lower()


def _fix_html(tracked: _TrackedText) -> _TrackedText:
    for old, new in _HTML:
        if old in tracked.text:
            pattern = re.compile(re.escape(old))
            tracked = tracked.rewrite(pattern, lambda m, new=new: [_Replacement(new, *m.span())])  # type: ignore[misc]
    return tracked.rewrite(_ENTITY, _entity) if "&" in tracked.text else tracked


def _entity(match: re.Match[str]) -> list[Part]:
    """Resolve HTML entities such as ``&amp;``; letters after an entity without a semicolon are unchanged."""
    old, new = match.group(), html.unescape(match.group())
    same = 0
    while same < min(len(old), len(new)) and old[-1 - same] == new[-1 - same]:
        same += 1
    end = match.end() - same
    replaced: list[Part] = (
        [_Replacement(new[: len(new) - same], match.start(), end)] if end > match.start() else []
    )
    return [*replaced, (end, match.end())]


def _repeated_character(match: re.Match[str]) -> list[Part]:
    start, end = match.span()
    marker = f" {REP} {end - start} "
    return [
        _Replacement(marker, start, end, True),
        _Replacement(match[1], start, end),
        _Replacement(" ", end, end),
    ]


def _repeated_word(match: re.Match[str]) -> list[Part]:
    start, end = match.start(1), match.start(2)
    times = len(match.string[start:end].split())
    word = [_Replacement(f" {WREP} {times} ", start, end, True), _Replacement(match[1], start, end)]
    return [*word, _Replacement(" ", end, end), match.span(2)]


def _spaced(match: re.Match[str]) -> list[Part]:
    start, end = match.span()
    return [_Replacement(" ", start, start), (start, end), _Replacement(" ", end, end)]


def _lowered(match: re.Match[str], marker: str) -> list[Part]:
    start, end = match.span()
    before: list[Part] = [_Replacement(f"{marker} ", start, end, True)] if end - start > 1 else []
    low: str | list[str] = match.group().lower()
    if len(low) != end - start:  # the lower case of some characters has two characters
        low = [c.lower() for c in match.group()]
    return before + [_Replacement(c, start + i, start + i + 1) for i, c in enumerate(low)]
