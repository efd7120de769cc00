"""Tokenization of lower-case English as by spaCy's rule-based tokenizer, on whose tokens AWD-LSTMs were
trained.

A text is split into runs of whitespace and of other characters. A single space between words is dropped,
additional whitespace is a separate token. Punctuation is removed from both ends of a run, one mark at a time,
until a known contraction or abbreviation or no punctuation is left. The rest is kept if it is an address, and
otherwise split at inner marks (hyphens between letters, ``=`` and ``/`` before letters, runs of dots).

The rules follow Honnibal & Montani's published description of spaCy's tokenizer; the word lists below are
derived from the grammar of English contractions. ``benchmarks/awd_lstm_parity.py`` measures the agreement
with spaCy.
"""

from __future__ import annotations

import re
from itertools import product

import regex

_MARKS = r"…,:;!?¿؟¡()\[\]{}<>_\#*&。？！，、；：～·।،۔؛٪"
_QUOTES = r"'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉⟦⟧"
_MONEY = r"$£€¥฿₠-₿﷼"
_LETTER, _SMALL, _LARGE = r"\p{L}", r"\p{Ll}\p{Lo}", r"\p{Lu}\p{Lo}"
_UNITS = (
    r"(?:[kdcm]?m|[кдсм]?м)[²³]?|ha|[µn]m|yd|in|ft|[kmµ]?g|[км]?г|t|lb|oz|m/s|km/h|kmh|mph|mbar|[mkgt]b|%|нм|м/с|км/ч"
    r"|кб|мб|гб|тб"
)

_PREFIX = regex.compile(rf"[§%=—–{_MARKS}{_QUOTES}{_MONEY}\p{{So}}]|\+(?![0-9])|\.\.+")
_SUFFIX = regex.compile(
    rf"""(?: \.\.+ | ['’]s | [—–{_MARKS}{_QUOTES}\p{{So}}]
    | (?<=[0-9])\+ | (?<=[0-9])[{_MONEY}] | (?<=[0-9])(?:{_UNITS})
    | (?<=[0-9{_SMALL}%²\-+|{_MARKS}{_QUOTES}])\. | (?<=[{_LARGE}][{_LARGE}])\.
    )\Z""",
    regex.VERBOSE,
)
_INFIX = regex.compile(
    rf"""\.\.+ | … | \p{{So}}
    | (?<=[0-9])[+\-*^](?=[0-9-])
    | (?<=[{_SMALL}{_QUOTES}])\.(?=[{_LARGE}{_QUOTES}])
    | (?<={_LETTER}),(?={_LETTER})
    | (?<=[{_LETTER}0-9])(?:[-–—~]|---?|——)(?={_LETTER})
    | (?<=[{_LETTER}0-9])[:<>=/](?={_LETTER})""",
    regex.VERBOSE,
)
_HOST = r"[a-z0-9\u00a1-\uffff](?:[a-z0-9\u00a1-\uffff_-]*[a-z0-9\u00a1-\uffff])?"
_ADDRESS = regex.compile(
    rf"""(?:[\w+.-]{{2,}}://)? (?:\S+@)?
    (?: (?!10\.|127\.|169\.254\.|192\.168\.) (?:[1-9]\d?|1\d\d|2[01]\d|22[0-3]) (?:\.\d{{1,3}}){{3}}
      | (?:{_HOST}\.)+[{_SMALL}]{{2,63}} )
    (?: :\d{{2,5}} )? (?: [/?\#]\S* )? \Z""",
    regex.VERBOSE,
)


def _contractions() -> dict[str, tuple[str, ...]]:
    """Return contractions and their parts, with and without apostrophes."""
    forms: list[tuple[str, ...]] = [("i", "'m"), ("i", "'m", "a")]
    personal = ("i", "you", "he", "she", "it", "we", "they")
    asking = ("who", "what", "when", "where", "why", "how", "there")
    pointing = ("that", "this")
    for word in (*personal, *asking, *pointing, "these", "those"):
        forms += [(word, "'ll"), (word, "'ll", "'ve"), (word, "'d"), (word, "'d", "'ve")]
    forms += [(w, "'ve") for w in ("i", "you", "we", "they", *asking, "these", "those")]
    forms += [(w, "'re") for w in ("you", "we", "they", *asking, "these", "those")]
    forms += [(w, "'s") for w in ("he", "she", "it", *asking, *pointing)]
    modal = [
        "ca",
        "could",
        "do",
        "does",
        "did",
        "had",
        "may",
        "might",
        "must",
        "need",
        "ought",
        "sha",
        "should",
        "wo",
        "would",
    ]
    forms += [(w, "n't", *more) for w in modal for more in ((), ("'ve",))]
    forms += [(w, "n't") for w in ["ai", "are", "is", "was", "were", "have", "has", "dare"]]
    forms += [(w, "'ve") for w in ["could", "might", "must", "should", "would", "not"]]
    out = {"".join(parts): parts for parts in forms}
    out |= {k.replace("'", ""): tuple(p.replace("'", "") for p in parts) for k, parts in out.items()}
    for word in ("ill", "its", "hell", "shell", "shed", "were", "well", "whore"):
        out.pop(word, None)  # separate words
    return out


def _emoticons() -> set[str]:
    """Return emoticons, also mirrored."""
    mouths = (")", "))", ")))", "(", "((", "(((", "]", "}", "/", "|", "p", "o", "0", "*", "3", ">", "x")
    out = {":" + nose + mouth for nose, mouth in product(("", "-"), mouths)}
    out |= {eyes + "-" * nose + ")" for eyes, nose in product((";", "8"), (0, 1))}
    out |= {mouth + "-" * nose + ":" for mouth, nose in product("()[", (0, 1))}
    out |= {"=" + mouth for mouth in ")(]/|[3"} | {"(=", "[=", "]=", "(;", "(-;", "(-8", "(o:", ":o)"}
    out |= {":'" + nose + mouth for nose, mouth in product(("", "-"), ")(")}
    out |= {">:(", ">:o", ":1", ":()", "=3", "<3", "<33", "<333", "</3"}
    out |= {
        a + "_" * n + a for a, n in (("^", 1), ("^", 2), ("^", 3), ("-", 1), ("-", 2), ("o", 1), ("0", 1))
    }
    return out | {
        "v_v",
        "@_@",
        ";_;",
        "._.",
        ">.<",
        ">.>",
        "<.<",
        "v.v",
        "o.o",
        "0.0",
        "o_0",
        "0_o",
        "0.o",
        "o.0",
    }


def _specials() -> dict[str, tuple[str, ...]]:
    out = _contractions()
    hours = product(range(1, 13), ("a.m.", "am", "p.m.", "pm"))
    out |= {f"{hour}{period}": (str(hour), period) for hour, period in hours}
    out |= {"y'all": ("y'", "all"), "yall": ("y", "all"), "how'd'y": ("how", "'d", "'y")}
    out |= {"cannot": ("can", "not"), "gonna": ("gon", "na"), "gotta": ("got", "ta")}
    out |= {"let's": ("let", "'s"), "c'mon": ("c'm", "on")}
    out |= {f"°{scale}.": ("°", scale, ".") for scale in "cfk"}
    one = {
        f"{stem}{end}"
        for stem in ["doin", "goin", "nothin", "nuthin", "somethin", "ol", "lovin", "havin"]
        for end in ("", "'")
    }
    one |= {
        f"'{word}" for word in ["s", "re", "d", "em", "ll", "nuff", "cause", "cos", "coz", "cuz", "bout"]
    } | {"em", "nuff", "‘s"}
    one |= {
        "'",
        "''",
        '\\")',
        "ma'am",
        "o'clock",
        "and/or",
        "w/o",
        "a.m.",
        "p.m.",
        "e.g.",
        "i.e.",
        "co.",
        "vs.",
        "v.s.",
    }
    one |= {f"{letter}." for letter in "abcdefghijklmnopqrstuvwxyzäöü"} | _emoticons() | {"—"}
    out |= {word: (word,) for word in one}
    return out | {
        k.replace("'", "’"): tuple(p.replace("'", "’") for p in v) for k, v in out.items() if "'" in k
    }


def _strip(run: str, known: dict[str, tuple[str, ...]]) -> tuple[list[str], str, list[str]]:
    """Return the marks before ``run``, the rest, and the marks after it (outermost first).

    Example: ('("hello")!') gives (['(', '"'], 'hello', ['!', ')', '"']).
    """
    before: list[str] = []
    behind: list[str] = []
    size = -1
    while run and len(run) != size and run not in known:
        size = len(run)
        prefix = _PREFIX.match(run)
        first = prefix.end() if prefix else 0
        if first and run[first:] in known:
            before.append(run[:first])
            return before, run[first:], behind
        suffix = _SUFFIX.search(run, first)
        last = suffix.end() - suffix.start() if suffix else 0
        if last and run[:-last] in known:
            behind.append(run[-last:])
            return before, run[:-last], behind
        if first:
            before.append(run[:first])
        if last and first + last <= size:
            behind.append(run[-last:])
            run = run[:-last]
        run = run[first:]
    return before, run, behind


def _split_inner(word: str) -> list[str]:
    """Split ``word`` at inner marks, unless it is an address."""
    if "." in word and _ADDRESS.match(word):
        return [word]
    out, at = [], 0
    for mark in _INFIX.finditer(word):
        if mark.start() == 0:
            continue
        if mark.start() > at:
            out.append(word[at : mark.start()])
        out.append(mark.group())
        at = mark.end()
    return [*out, word[at:]] if word[at:] else out


def _split(run: str, known: dict[str, tuple[str, ...]]) -> list[str]:
    before, rest, behind = _strip(run, known)
    inner = list(known[rest]) if rest in known else _split_inner(rest) if rest else []
    return [*before, *inner, *reversed(behind)]


_SPECIALS = _specials()
_SPLIT_SPECIALS = {
    tuple(_split(word, {})): parts for word, parts in _SPECIALS.items() if len(_split(word, {})) > 1
}
"""The special cases as they look after ordinary splitting."""
_LONGEST = max(map(len, _SPLIT_SPECIALS))
_RUN = re.compile(r"\S+|\s+")
_cache: dict[str, tuple[str, ...]] = {}
_CACHE_SIZE = 200_000


def _tokens_of(run: str) -> tuple[str, ...]:
    """Return the tokens of a run of characters; their concatenation is the run."""
    if run in _cache:
        return _cache[run]
    tokens = list(_SPECIALS[run]) if run in _SPECIALS else _split(run, _SPECIALS)
    if len(tokens) > 1 and run not in _SPECIALS:
        tokens = _rejoined(tokens)
    if len(_cache) < _CACHE_SIZE:
        _cache[run] = tuple(tokens)
    return tuple(tokens)


def _rejoined(tokens: list[str]) -> list[str]:
    """Rejoin special cases that were split inside a run, the longest first."""
    out: list[str] = []
    at = 0
    while at < len(tokens):
        for size in range(min(_LONGEST, len(tokens) - at), 1, -1):
            parts = _SPLIT_SPECIALS.get(tuple(tokens[at : at + size]))
            if parts is not None:
                out += parts
                at += size
                break
        else:
            out.append(tokens[at])
            at += 1
    return out


def english_tokens(text: str) -> list[tuple[int, int]]:
    """Return the spans ``(start, end)`` of the tokens of a lower-case ``text``, in order.

    A single space between words is in no token. Example: "it's  ok" has the tokens "it", "'s", " " and "ok".
    """
    out: list[tuple[int, int]] = []
    for run in _RUN.finditer(text):
        start, end = run.span()
        if text[start].isspace():
            start += text[start] == " " and start > 0
            out += [(start, end)] if start < end else []
            continue
        for token in _tokens_of(run.group()):
            out.append((start, start + len(token)))
            start += len(token)
    return out
