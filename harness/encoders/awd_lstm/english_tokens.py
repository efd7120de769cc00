"""Tokens as spaCy's rule tokenizer makes them of lower-case English, which AWD-LSTMs were trained on.

A text falls into runs of blanks and of other characters. One blank between words is dropped, any further ones
are a token of their own. From a run of characters marks are taken off both ends, one at a time, until a known
contraction or abbreviation is left or nothing more comes off; what is left is an address, or is cut at the
marks inside it (hyphens between letters, ``=`` and ``/`` before letters, runs of dots).

The rules follow Honnibal & Montani's published description of spaCy's tokenizer; the word lists below are
written out of the grammar of English contractions. How often the result equals spaCy's own is measured by
``benchmarks/awd_lstm_parity.py``.
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
    """Contracted words and their parts, with an apostrophe; those that are written without one, too."""
    whole: list[tuple[str, ...]] = [("i", "'m"), ("i", "'m", "a")]
    personal = ("i", "you", "he", "she", "it", "we", "they")
    asking = ("who", "what", "when", "where", "why", "how", "there")
    pointing = ("that", "this")
    for word in (*personal, *asking, *pointing, "these", "those"):
        whole += [(word, "'ll"), (word, "'ll", "'ve"), (word, "'d"), (word, "'d", "'ve")]
    whole += [(w, "'ve") for w in ("i", "you", "we", "they", *asking, "these", "those")]
    whole += [(w, "'re") for w in ("you", "we", "they", *asking, "these", "those")]
    whole += [(w, "'s") for w in ("he", "she", "it", *asking, *pointing)]
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
    whole += [(w, "n't", *more) for w in modal for more in ((), ("'ve",))]
    whole += [(w, "n't") for w in ["ai", "are", "is", "was", "were", "have", "has", "dare"]]
    whole += [(w, "'ve") for w in ["could", "might", "must", "should", "would", "not"]]
    out = {"".join(parts): parts for parts in whole}
    out |= {k.replace("'", ""): tuple(p.replace("'", "") for p in parts) for k, parts in out.items()}
    for word in ("ill", "its", "hell", "shell", "shed", "were", "well", "whore"):
        out.pop(word, None)  # words of their own
    return out


def _faces() -> set[str]:
    """Emoticons, upright and mirrored."""
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
    one |= {f"{letter}." for letter in "abcdefghijklmnopqrstuvwxyzäöü"} | _faces() | {"—"}
    out |= {word: (word,) for word in one}
    return out | {
        k.replace("'", "’"): tuple(p.replace("'", "’") for p in v) for k, v in out.items() if "'" in k
    }


def _strip(run: str, known: dict[str, tuple[str, ...]]) -> tuple[list[str], str, list[str]]:
    """Marks in front of ``run``, what is left, marks behind it (outermost first)."""
    before: list[str] = []
    behind: list[str] = []
    size = -1
    while run and len(run) != size and run not in known:
        size = len(run)
        found = _PREFIX.match(run)
        first = found.end() if found else 0
        if first and run[first:] in known:
            before.append(run[:first])
            return before, run[first:], behind
        found = _SUFFIX.search(run, first)
        last = found.end() - found.start() if found else 0
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


def _cut(word: str) -> list[str]:
    """``word`` cut at the marks inside it, unless it is an address."""
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
    inner = list(known[rest]) if rest in known else _cut(rest) if rest else []
    return [*before, *inner, *reversed(behind)]


_SPECIALS = _specials()
_TAKEN_APART = {
    tuple(_split(word, {})): parts for word, parts in _SPECIALS.items() if len(_split(word, {})) > 1
}
"""Specials as they look where nobody stopped at them."""
_LONGEST = max(map(len, _TAKEN_APART))
_RUNS = re.compile(r"\S+|\s+")
_seen: dict[str, tuple[str, ...]] = {}
_MOST_SEEN = 200_000


def _tokens_of(run: str) -> tuple[str, ...]:
    """Tokens of a run of characters; their concatenation is the run."""
    if run in _seen:
        return _seen[run]
    tokens = list(_SPECIALS[run]) if run in _SPECIALS else _split(run, _SPECIALS)
    if len(tokens) > 1 and run not in _SPECIALS:
        tokens = _joined(tokens)
    if len(_seen) < _MOST_SEEN:
        _seen[run] = tuple(tokens)
    return tuple(tokens)


def _joined(tokens: list[str]) -> list[str]:
    """Put specials together again that were taken apart inside a run, the longest first."""
    out: list[str] = []
    at = 0
    while at < len(tokens):
        for size in range(min(_LONGEST, len(tokens) - at), 1, -1):
            parts = _TAKEN_APART.get(tuple(tokens[at : at + size]))
            if parts is not None:
                out += parts
                at += size
                break
        else:
            out.append(tokens[at])
            at += 1
    return out


def english_tokens(text: str) -> list[tuple[int, int]]:
    """Spans ``(start, end)`` of the tokens of a lower-case ``text``, in order; one blank between words is in
    none."""
    out: list[tuple[int, int]] = []
    for run in _RUNS.finditer(text):
        start, end = run.span()
        if text[start].isspace():
            start += text[start] == " " and start > 0
            out += [(start, end)] if start < end else []
            continue
        for token in _tokens_of(run.group()):
            out.append((start, start + len(token)))
            start += len(token)
    return out
