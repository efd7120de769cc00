"""Label schemes: recognition, normalisation, entities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness_tasks.tagging.schemes import entities, from_entities, recognise, strict_entities, to_iob2

SPANS = [("A", 0, 2), ("A", 2, 3), ("B-x", 4, 7)]
WRITTEN = {
    "iob1": ["I-A", "I-A", "B-A", "O", "I-B-x", "I-B-x", "I-B-x"],
    "iob2": ["B-A", "I-A", "B-A", "O", "B-B-x", "I-B-x", "I-B-x"],
    "bioes": ["B-A", "E-A", "S-A", "O", "B-B-x", "I-B-x", "E-B-x"],
    "bilou": ["B-A", "L-A", "U-A", "O", "B-B-x", "I-B-x", "L-B-x"],
}


@pytest.mark.parametrize("scheme", WRITTEN)
def test_schemes_are_recognised_and_normalised(scheme: str) -> None:
    labels = WRITTEN[scheme]
    found = recognise([["O"], labels])
    assert (found.scheme, found.ill_formed) == (scheme, 0)
    assert f"label scheme {scheme} (recognised)" in found.note
    assert to_iob2(labels, scheme) == WRITTEN["iob2"]
    assert entities(labels) == SPANS


def test_iob1_neighbours_of_one_type() -> None:
    tags = ["I-MISC", "B-MISC", "I-MISC", "O"]
    assert recognise([tags]).scheme == "iob1"
    iob2 = to_iob2(tags, "iob1")
    assert iob2 == ["B-MISC", "B-MISC", "I-MISC", "O"]
    assert entities(tags) == [("MISC", 0, 1), ("MISC", 1, 3)]
    assert from_entities(entities(tags), 4, scheme="bioes") == ["S-MISC", "B-MISC", "E-MISC", "O"]


def test_io_with_and_without_prefix() -> None:
    assert recognise([["I-A", "I-A", "O"]]).scheme == "io"
    assert recognise([["A", "A", "O"]]).scheme == "none"
    assert recognise([["A", "A", "O"]], scheme="io").scheme == "io"
    assert to_iob2(["PER", "PER", "O"], "io") == ["B-PER", "I-PER", "O"]


def test_plain_labels() -> None:
    found = recognise([["DET", "NOUN", "PUNCT"], ["O"]])
    assert found.scheme == "none"
    assert "no entities" in found.note
    assert to_iob2(["DET", "NOUN"], "none") == ["DET", "NOUN"]


def test_letters_among_plain_labels_are_no_prefixes() -> None:
    assert recognise([["N", "V", "U", "O", "E"]]).scheme == "none"


def test_bare_prefixes_have_one_type() -> None:
    assert entities(["B", "I", "O", "B"]) == [("_", 0, 2), ("_", 3, 4)]


def test_all_outside() -> None:
    assert recognise([["O", "O"]]).scheme == "iob2"


def test_ill_formed_labels_are_counted_and_kept() -> None:
    found = recognise([["B-A", "I-A", "O", "I-A"], ["B-A", "O"], ["B-A", "I-B"]])
    assert (found.scheme, found.ill_formed) == ("iob2", 2)
    assert "2 ill-formed" in found.note
    assert to_iob2(["B-A", "I-B", "O", "I-A"], "iob2") == ["B-A", "B-B", "O", "B-A"]
    assert recognise([["B-A", "O", "E-A", "I-A"]]).ill_formed == 3


def test_a_given_scheme_wins_and_is_checked() -> None:
    assert recognise([["B-A", "O"]], scheme="bioes").scheme == "bioes"
    with pytest.raises(
        HarnessError, match=r"task.scheme=iob2, but 'S-A' is neither O nor one of B-TYPE, I-TYPE"
    ):
        recognise([["S-A", "O"]], scheme="iob2")
    with pytest.raises(HarnessError, match="did you mean iob2"):
        recognise([["O"]], scheme="iob3")


def test_mixed_labels_are_an_error() -> None:
    with pytest.raises(HarnessError, match="look like iob2, but 'PER' is neither"):
        recognise([["B-PER", "PER"]])
    with pytest.raises(HarnessError, match="look like bilou, but 'E-A' is"):
        recognise([["B-A", "E-A", "U-A"]])


def test_strict_entities_begin_with_b() -> None:
    assert strict_entities(["I-A", "B-A", "I-A", "I-B", "O"]) == [("A", 1, 3)]
    assert strict_entities(["B-A", "I-B", "I-A"]) == [("A", 0, 1)]


@st.composite
def spans(draw: st.DrawFn) -> tuple[list[tuple[str, int, int]], int]:
    found, at = [], 0
    for _ in range(draw(st.integers(0, 5))):
        start = at + draw(st.integers(0, 2))
        at = start + draw(st.integers(1, 3))
        found.append((draw(st.sampled_from("XY")), start, at))
    return found, at + draw(st.integers(0, 2))


@given(spans())
def test_writing_and_reading_are_inverse(drawn: tuple[list[tuple[str, int, int]], int]) -> None:
    found, length = drawn
    for scheme in ("iob2", "bioes"):
        labels = from_entities(found, length, scheme=scheme)
        assert entities(labels) == found
        assert strict_entities(to_iob2(labels, scheme)) == found
        assert recognise([labels], scheme=scheme).ill_formed == 0
