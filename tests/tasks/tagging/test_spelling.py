"""Spellings of entity labels: recognition, conversion, refusal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.reading.log import ReadLog
from harness.errors import HarnessError
from harness_tasks.tagging.columns import Sentence
from harness_tasks.tagging.schemes import entities, from_entities, recognise
from harness_tasks.tagging.spelling import STYLES, LabelOptions, normalise_labels

IOB2 = ["B-PER", "I-PER", "O", "B-LOC", "O"]


def sentence(labels: Sequence[str], line: int = 1) -> Sentence:
    return Sentence([f"w{i}" for i in range(len(labels))], list(labels), line, source="x.conll")


def read(*sequences: Sequence[str], log: ReadLog | None = None, **options: object) -> list[list[str]]:
    lines = [1 + sum(len(s) + 1 for s in sequences[:i]) for i in range(len(sequences))]
    part = [sentence(labels, line) for labels, line in zip(sequences, lines, strict=True)]
    done = normalise_labels({"train": part}, LabelOptions(**options), log or ReadLog())  # type: ignore[arg-type]
    return [s.labels for s in done["train"]]


def spelled(labels: Sequence[str], name: str) -> list[str]:
    style = STYLES[name]
    pattern = name.replace("TYPE", "{kind}").replace("type", "{kind}")
    out = []
    for label in labels:
        prefix, _, kind = label.partition("-")
        text = pattern.replace("b", prefix.lower()) if style.lower else pattern.replace("B", prefix)
        out.append(("o" if style.lower else "O") if label == "O" else text.format(kind=kind))
    return out


@pytest.mark.parametrize("name", STYLES)
def test_every_spelling_is_recognised_and_converted(name: str) -> None:
    log = ReadLog()
    assert read(spelled(IOB2, name), log=log) == [IOB2]
    fact = log.facts["all splits"]["label style"]
    assert (fact.value, fact.origin) == (name, "recognised")
    assert bool(log.notes) == (name != "B-TYPE")
    assert read(spelled(IOB2, name), style=name) == [IOB2]


def test_spelled_examples() -> None:
    assert spelled(IOB2, "TYPE_B") == ["PER_B", "PER_I", "O", "LOC_B", "O"]
    assert read(["b-per", "i-per", "o"]) == [["B-per", "I-per", "O"]]
    assert read(["PER:B", "PER:E", "O", "LOC:S"]) == [["B-PER", "E-PER", "O", "S-LOC"]]
    assert read(["b", "i", "o"]) == [["B-_", "I-_", "O"]]
    assert read(["B", "I", "O"]) == [["B", "I", "O"]]


def test_brackets_are_spans() -> None:
    log = ReadLog()
    labels = ["(PERSON*", "*", "*)", "*", "(LOC)", "(ORG*)"]
    assert read(labels, log=log) == [["B-PERSON", "I-PERSON", "I-PERSON", "O", "B-LOC", "B-ORG"]]
    assert log.facts["all splits"]["label style"].value == "brackets"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["(A*", "*"], "x.conll:2: the sentence ends inside the span A"),
        (["*", "*)", "(A*)"], r"x.conll:2: label '\*\)' closes a span that was not opened"),
        (["(A*", "(B*)", "*)"], r"x.conll:2: label '\(B\*\)' opens a span inside A"),
        (["(12", "-", "12)"], r"x.conll:1: label '\(12' looks like brackets"),
    ],
)
def test_brackets_that_are_not_balanced_are_refused(labels: list[str], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        read(labels)
    if "(12" not in labels:
        log = ReadLog(on_error="skip")
        assert read(labels, ["(A)", "*"], log=log) == [["B-A", "O"]]
        assert len(log.skipped) == 1


@pytest.mark.parametrize("outside", ["0", "o", "OTHER", "_", "-", "None", "\u041e"])
@pytest.mark.parametrize("style", ["B-TYPE", "B_TYPE", "TYPE-B"])
def test_labels_like_o_beside_entities_are_refused_and_can_be_set(outside: str, style: str) -> None:
    labels = [outside if label == "O" else label for label in spelled(IOB2, style)]
    with pytest.raises(HarnessError, match=rf"x.conll:3: label '{outside}' beside entities .*outside_label="):
        read(labels)
    assert read(labels, outside=(outside,)) == [IOB2]
    mixed = [*spelled(IOB2, style), "O"]
    with pytest.raises(HarnessError, match=rf"x.conll:9: label '{outside}' beside"):
        read(mixed, ["O", outside])


def test_an_outside_label_that_does_not_occur_is_an_error() -> None:
    with pytest.raises(HarnessError, match=r"task.outside_label=OTHER: no such label; the most frequent: O"):
        read(IOB2, outside=("OTHER",))


@pytest.mark.parametrize(
    ("labels", "readings"),
    [
        (["O", "O", "PER", "LOC"], ["task.scheme=io", "task.scheme=none"]),
        (["OTHER", "OTHER", "PER"], ["task.outside_label=OTHER task.scheme=io", "task.scheme=none"]),
        (["0", "0", "1", "2"], ["task.outside_label=0 task.scheme=io", "task.scheme=none"]),
        (["B_A", "B_X"], ["task.label_style=B_TYPE", "task.scheme=none"]),
        (["B_I", "I_B", "O"], ["task.label_style=B_TYPE", "task.label_style=TYPE_B"]),
    ],
)
def test_labels_that_may_be_entities_or_plain_are_refused(labels: list[str], readings: list[str]) -> None:
    with pytest.raises(HarnessError, match=r"^x.conll:\d: are .* entities or plain labels\? Set ") as e:
        read(labels)
    assert all(reading in str(e.value) for reading in readings)
    assert read(labels, scheme="none") == [labels]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["B-PER", "PER", "O"], "x.conll:2: label 'PER' is neither O nor B-TYPE, as B-PER"),
        (["B_PER", "I_PER", "O", "MISC"], "x.conll:4: label 'MISC' is neither O nor B_TYPE, as B_PER, I_PER"),
        (["B-PER", "I_PER", "O"], "x.conll:2: label 'I_PER' is neither O nor B-TYPE"),
        (["B-PER", "i-PER", "O"], "x.conll:2: label 'i-PER' is neither"),
    ],
)
def test_other_labels_beside_entities_are_refused(labels: list[str], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        read(labels)


@pytest.mark.parametrize(
    "labels",
    [
        ["DET", "NOUN", "PUNCT"],
        ["N", "V", "U", "O", "E", "N"],
        ["nmod:poss", "acl:relcl", "root"],
        ["#", "(", ")", "NN", "-LRB-", "''"],
        ["_", "Mood=Ind", "Number=Sing", "Case=Nom", "Mood=Ind"],
        ["b", "x", "o"],
    ],
)
def test_parts_of_speech_stay_plain(labels: list[str]) -> None:
    log = ReadLog()
    assert read(labels, log=log) == [labels]
    assert log.facts["all splits"]["label style"].value == "plain"
    assert recognise([labels]).scheme == "none"


def test_io_labels_are_kept_with_their_scheme() -> None:
    assert read(["PER", "PER", "O"], scheme="io") == [["PER", "PER", "O"]]
    with pytest.raises(HarnessError, match=r"x.conll:3: label '0' beside entities such as PER"):
        read(["PER", "O", "0"], scheme="io")


def test_types_that_differ_in_case_are_reported() -> None:
    log = ReadLog()
    read(["B-PER", "B-Per", "O"], log=log)
    assert log.warnings == ["entity types that differ in case only: PER, Per"]


def test_options_are_checked() -> None:
    with pytest.raises(HarnessError, match=r"task.label_style=B_TYP: did you mean B_TYPE"):
        LabelOptions(style="B_TYP")
    with pytest.raises(HarnessError, match="plain labels have no"):
        LabelOptions(scheme="none", outside=("0",))
    with pytest.raises(HarnessError, match=r"x.conll:1: label 'B-PER' is neither O nor B_TYPE"):
        read(IOB2, style="B_TYPE")


@st.composite
def spans(draw: st.DrawFn) -> tuple[list[tuple[str, int, int]], int]:
    found, at = [], 0
    for _ in range(draw(st.integers(1, 4))):
        start = at + draw(st.integers(0, 2))
        at = start + draw(st.integers(1, 3))
        found.append((draw(st.sampled_from(["PER", "creative-work", "A/1"])), start, at))
    return found, at + draw(st.integers(1, 2))


@given(spans(), st.sampled_from([*STYLES, "brackets"]), st.sampled_from(["iob2", "bioes"]))
def test_entities_survive_every_spelling(
    drawn: tuple[list[tuple[str, int, int]], int], name: str, scheme: str
) -> None:
    found, length = drawn
    if name == "brackets":
        labels = ["*"] * length
        for kind, start, end in found:
            labels[start] = f"({kind}*"
            labels[end - 1] = f"({kind})" if end - start == 1 else "*)"
    else:
        labels = spelled(from_entities(found, length, scheme=scheme), name)
    assert entities(read(labels, ["*" if name == "brackets" else "O"])[0]) == found


LABELS = st.sampled_from(
    ["O", "0", "o", "B-A", "I-A", "B_A", "A-B", "A", "b-a", "(A*", "*", "*)", "(A)", "_", "B", "NN"]
)


@given(
    st.lists(
        st.lists(LABELS | st.text(min_size=1, max_size=4), min_size=1, max_size=6), min_size=1, max_size=4
    )
)
def test_arbitrary_labels_are_read_or_refused(sequences: list[list[str]]) -> None:
    try:
        out = read(*sequences, log=ReadLog(on_error="skip"))
        found = recognise(out)
    except HarnessError:
        return
    if found.scheme == "none":
        assert out == sequences
    else:
        assert all(label == "O" or label[1:2] in ("-", "") for labels in out for label in labels)
