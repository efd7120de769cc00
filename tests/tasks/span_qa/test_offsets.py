"""Answers that differ from their context: what is repaired, what is refused, and that spans stay true."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_tasks.span_qa.offsets import LEVELS, fold, locate_answer

SPACE, NFC, NFKC, SPELLING = (f"differs in {level.differs}" for level in LEVELS)


def differing(context: str, answer: str, start: int | None) -> tuple[str, str] | None:
    """The text that was found, and how."""
    found = locate_answer(context, answer, start)
    return found and (context[found.start : found.end], found.how)


@pytest.mark.parametrize(
    ("between", "how"),
    [
        ("  ", SPACE),
        ("\u00a0", SPACE),
        ("\n", SPACE),
        ("\r\n\t", SPACE),
        ("\u3000", SPACE),
        (" \u200b", SPACE),
        ("", "differs in missing or additional white space"),
    ],
)
def test_an_answer_that_differs_in_white_space_is_the_span_at_its_start(between: str, how: str) -> None:
    context = f"Tea 1 was made by Ada{between}Weiss in May, by Ada Weiss in June."
    assert differing(context, "Ada Weiss", 18) == (f"Ada{between}Weiss", how)
    assert differing(context, " Ada \t Weiss", 17) == (f"Ada{between}Weiss", how)


def test_white_space_left_out_never_makes_a_part_of_a_word_an_answer() -> None:
    assert locate_answer("It is a table now.", "at", 6) is None
    assert differing("It cost 1,000 yen.", "1 , 000", 8) == (
        "1,000",
        "differs in missing or additional white space",
    )


@pytest.mark.parametrize(
    ("context", "answer", "start", "found", "how"),
    [
        ("Cafe\u0301 Noir opens.", "Café Noir", 0, "Cafe\u0301 Noir", NFC),
        ("Café Noir opens.", "Cafe\u0301 Noir", 0, "Café Noir", NFC),
        (unicodedata.normalize("NFD", "서울은 크다"), "서울", 0, unicodedata.normalize("NFD", "서울"), NFC),
        ("Area of 5 m² here.", "5 m2", 8, "5 m²", NFKC),
        ("The oﬃce is open.", "office", 4, "oﬃce", NFKC),
        ("Ｎｏ．１ is best.", "No.1", 0, "Ｎｏ．１", NFKC),
        ("made by ada weiss in May", "Ada Weiss", 8, "ada weiss", SPELLING),
        ("made by “Ada” in May", '"Ada"', 8, "“Ada”", SPELLING),
        ("from 1939–1945 on", "1939-1945", 5, "1939–1945", SPELLING),
        ("die STRASSE hier", "Straße", 4, "STRASSE", SPELLING),
    ],
)  # fmt: skip
def test_normal_forms_case_and_quotes(context: str, answer: str, start: int, found: str, how: str) -> None:
    assert differing(context, answer, start) == (found, how)
    assert differing(context, answer, None) == (found, f"{how}, no answer_start, located by the text")


def test_a_span_never_cuts_a_letter_from_its_accent() -> None:
    assert locate_answer("Cafe\u0301 Noir", "cafe", 0) is None
    assert locate_answer("oﬃce", "Off", 0) is None
    assert locate_answer("Cafe\u0301 cafe", "Cafe", 6) == (6, 10, SPELLING)


def test_what_is_at_the_start_comes_before_an_exact_answer_elsewhere() -> None:
    context = "Ada  Weiss met the other Ada Weiss."
    assert locate_answer(context, "Ada Weiss", 0) == (0, 10, SPACE)
    assert locate_answer(context, "Ada Weiss", 25) == (25, 34, "exact")
    assert locate_answer("🚀 Ada  Weiss, Ada\tWeiss", "Ada Weiss", 3) == (
        2,
        12,
        f"{SPACE}, offsets counted in UTF-16 units",
    )


def test_several_occurrences_without_a_start_are_not_chosen_from() -> None:
    assert locate_answer("Oak and Oak", "Oak", None) is None
    assert locate_answer("Oak  A and Oak\tA", "Oak A", None) is None
    assert locate_answer("Oak  A and Oak\tA", "Oak A", 40) is None
    assert locate_answer("Oak  A and Oak\tA", "Oak A", 9) == (
        11,
        16,
        f"{SPACE}, moved to the nearest occurrence",
    )
    assert locate_answer("one Oak", "Oak", None) == (4, 7, "no answer_start, located by the text")


TEXT = st.text("aAéE\u0301 \u00a0\n\u200bﬁ²'’“\"–-서\u1109\u1165.🚀ß", max_size=12)


def loosely_equal(text: str) -> str:
    """An independent normal form: NFKC, case folded, ASCII quotes and dashes, nothing blank or invisible."""
    for one, other in (("’", "'"), ("“", '"'), ("–", "-"), ("\u200b", "")):
        text = text.replace(one, other)
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return re.sub(r"\s+", "", text)


@settings(max_examples=200, deadline=None)
@given(
    before=TEXT,
    answer=TEXT,
    after=TEXT,
    form=st.sampled_from(["NFC", "NFD", "NFKC", "NFKD", ""]),
    given_start=st.booleans(),
)
def test_a_repaired_span_equals_the_answer_after_normalisation(
    before: str, answer: str, after: str, form: str, given_start: bool
) -> None:
    context = before + answer + after
    wanted = " ".join((unicodedata.normalize(form, answer) if form else answer.swapcase()).split())
    if not wanted:
        return
    found = locate_answer(context, wanted, len(before) if given_start else None)
    if found is not None:
        span = context[found.start : found.end]
        assert 0 <= found.start < found.end <= len(context)
        assert loosely_equal(span) == loosely_equal(wanted)
        assert found.how != "exact" or span == wanted


@settings(max_examples=100, deadline=None)
@given(text=TEXT, level=st.sampled_from(LEVELS))
def test_folded_characters_know_their_source(text: str, level: object) -> None:
    folded = fold(text, level)  # type: ignore[arg-type]
    assert len(folded.text) == len(folded.starts) == len(folded.ends)
    inner = [(a, b) for a, b in zip(folded.starts, folded.ends, strict=True) if a >= 0]
    assert [a for a, _ in inner] == sorted({a for a, _ in inner})
    assert fold(folded.text, level).text == folded.text  # type: ignore[arg-type]
