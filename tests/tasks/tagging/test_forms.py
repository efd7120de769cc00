"""Recognising the form of column files: CoNLL-U, OntoNotes, comments, columns."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.reading.log import ReadLog
from harness.errors import HarnessError
from harness_tasks.tagging.columns import Parsed, parse_lines, read_columns
from harness_tasks.tagging.forms import ColumnLayout

AU_PARC = """# sent_id = s0
# text = Je vais du parc au lac .
1	Je	je	PRON	CLS	_	2	nsubj	_	_
2	vais	aller	VERB	V	Mood=Ind|Person=1	0	root	_	_
3-4	du	_	_	_	_	_	_	_	_
3	de	de	ADP	P	_	5	case	_	_
4	le	le	DET	D	_	5	det	_	_
5	parc	parc	NOUN	N	Number=Sing	2	obl	_	_
5.1	vais	aller	VERB	_	_	_	_	2:conj	_
6-7	au	_	_	_	_	_	_	_	_
6	à	à	ADP	P	_	8	case	_	_
7	le	le	DET	D	_	8	det	_	_
8	lac	lac	NOUN	N	_	2	obl	_	SpaceAfter=No
9	.	.	PUNCT	PONCT	_	2	punct	_	_

"""
WORDS = ["Je", "vais", "de", "le", "parc", "à", "le", "lac", "."]
UPOS = ["PRON", "VERB", "ADP", "DET", "NOUN", "ADP", "DET", "NOUN", "PUNCT"]


def parse(text: str, *, source: str = "x.conll", log: ReadLog | None = None, **layout: object) -> Parsed:
    return parse_lines(text.split("\n"), source=source, layout=ColumnLayout(**layout), log=log)  # type: ignore[arg-type]


def facts(log: ReadLog, source: str = "x.conll") -> dict[str, str]:
    return {name: f"{fact.value} {fact.origin}" for name, fact in log.facts[source].items()}


@pytest.mark.parametrize("source", ["fr.conllu", "fr.conllu.gz", "fr.txt"])
@pytest.mark.parametrize("layout", [{}, {"token_column": 1, "label_column": 3}, {"label_column": "UPOS"}])
def test_conllu_words_are_forms_without_ranges_and_empty_nodes(
    source: str, layout: dict[str, object]
) -> None:
    log = ReadLog()
    parsed = parse(AU_PARC * 2, source=source, log=log, **layout)
    assert [s.words for s in parsed.sentences] == [WORDS, WORDS]
    assert [s.labels for s in parsed.sentences] == [UPOS, UPOS]
    assert parsed.plain
    assert sorted(log.excluded.values()) == [2, 4]
    assert "CoNLL-U" in facts(log, source)["format"]
    assert facts(log, source)["labels"] == f"column 3 of 10 (upos) {'given' if layout else 'recognised'}"


def test_any_line_that_begins_with_a_hash_is_a_comment_of_conllu() -> None:
    more = "# global.columns = ID FORM LEMMA\n# text_en = I go\n# speaker = S1\n#nospace\n" + AU_PARC
    assert [s.words for s in parse(more, source="x.conllu").sentences] == [WORDS]


def test_columns_of_conllu_by_name() -> None:
    labels = parse(AU_PARC, label_column="deprel").sentences[0].labels
    assert labels == ["nsubj", "root", "case", "det", "obl", "case", "det", "obl", "punct"]
    assert parse(AU_PARC, label_column="feats").sentences[0].labels[:3] == ["_", "Mood=Ind|Person=1", "_"]
    with pytest.raises(HarnessError, match="label_column=uppos: did you mean upos"):
        parse(AU_PARC, label_column="uppos")
    with pytest.raises(HarnessError, match="label_column=upos: the columns of this file have no names"):
        parse("a O\n", label_column="upos")


def test_conllu_plus_names_its_columns() -> None:
    text = "# global.columns = ID FORM UPOS NER\n1\tAda\tPROPN\tB-PER\n2\tran\tVERB\tO\n"
    parsed = parse(text, source="x.conllup", label_column="ner")
    assert (parsed.sentences[0].words, parsed.sentences[0].labels) == (["Ada", "ran"], ["B-PER", "O"])
    assert not parsed.plain


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("3\tx\tx\tNOUN\t_\t_\t_\t_\t_\t_", r"x.conllu:3: .* has the id 3, expected 2; a blank line ends"),
        ("2\tx\tx\t_\t_\t_\t_\t_\t_\t_", r"x.conllu:3: .* has no label in column upos \('_'\)"),
        ("two\tx\tx\tNOUN\t_\t_\t_\t_\t_\t_", r"x.conllu:3: .* does not begin with an id"),
        ("2 x NOUN", r"x.conllu:3: .* has 1 column\(s\) between tabs, CoNLL-U has 10"),
    ],
)
def test_a_bad_row_of_conllu_is_named_or_skips_its_sentence(bad: str, message: str) -> None:
    row = "1\ta\ta\tDET\t_\t_\t_\t_\t_\t_"
    text = f"# text = a\n{row}\n{bad}\n\n{row}\n"
    with pytest.raises(HarnessError, match=message):
        parse(text, source="x.conllu")
    log = ReadLog(on_error="skip")
    assert [s.line for s in parse(text, source="x.conllu", log=log).sentences] == [5]
    assert [row.where for row in log.skipped] == ["x.conllu:3"]


def test_a_file_with_the_structure_of_a_treebank_keeps_all_words(tmp_path: Path) -> None:
    """Ranges, empty nodes and comments as in UD_French-Sequoia, counted by an independent generator."""
    rng = random.Random(0)
    lines, expected = [], {"words": 0, "ranges": 0, "empty": 0, "sentences": 300}
    for i in range(expected["sentences"]):
        lines += [f"# sent_id = annodis.er_{i:05d}", f"# text = phrase {i}", "# newpar"]
        n = rng.randint(1, 60)
        at = 1
        while at <= n:
            if at < n and rng.random() < 0.03:
                lines.append(f"{at}-{at + 1}\tdu" + "\t_" * 8)
                expected["ranges"] += 1
            lines.append(f"{at}\tmot{at}\tmot\t{rng.choice(['NOUN', 'DET', 'X'])}\t_\t_\t0\troot\t_\t_")
            if rng.random() < 0.01:
                lines.append(f"{at}.1\tvide\tvide\tVERB" + "\t_" * 6)
                expected["empty"] += 1
            at += 1
        expected["words"] += n
        lines.append("")
    path = tmp_path / "fr_sequoia-ud-train.conllu"
    path.write_text("\n".join(lines), encoding="utf-8")
    log = ReadLog()
    parsed = read_columns(path, log=log)
    excluded = {reason.split()[0]: n for (_, reason), n in log.excluded.items()}
    assert len(parsed.sentences) == expected["sentences"]
    assert sum(len(s.words) for s in parsed.sentences) == expected["words"]
    assert excluded == {"ranges": expected["ranges"], "empty": expected["empty"]}
    assert {label for s in parsed.sentences for label in s.labels} == {"NOUN", "DET", "X"}
    assert parsed.comments == 3 * 300


def test_ontonotes_files_are_read_by_their_columns() -> None:
    row = "bc/cctv 0 {i} {w} NN (S* - - - Speaker#1 {ne} (V*) (12)"
    rows = [row.format(i=i, w=w, ne=ne) for i, (w, ne) in enumerate([("Ada", "(PERSON*"), ("Weiss", "*)")])]
    text = "\n".join(["#begin document (bc/cctv); part 000", *rows, "", rows[0] + " *", "#end document"])
    parsed = parse(text)
    assert [s.words for s in parsed.sentences] == [["Ada", "Weiss"], ["Ada"]]
    assert parsed.sentences[0].labels == ["(PERSON*", "*)"]
    assert parsed.comments == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#text\tO\n#id\tO\n\n#tags\tB-X\nx\tB-X\ny\tO\n", ["#text", "#id", "#tags", "x", "y"]),
        ("# id\tO\nx\tO\n", ["# id", "x"]),
        ("# # #\nx NN O\n", ["#", "x"]),
        ("# # B-NP\nx NN O\ny NN O\n", ["#", "x", "y"]),
        ("# speaker = S1\nx O\ny O\n", ["x", "y"]),
        ("## a\tb c\nx\tO\ny\tO\n", ["x", "y"]),
        ("#tag\tB-NEW\nx\tO\ny\tO\n", ["#tag", "x", "y"]),
        ("#begin document (a); part 0\nx O\ny O\n#end document\n", ["x", "y"]),
    ],
)
def test_hashtags_are_words_and_comments_are_not(text: str, words: list[str]) -> None:
    assert [w for s in parse(text).sentences for w in s.words] == words


def test_recognised_comments_are_logged() -> None:
    log = ReadLog()
    parse("# sent_id = 1\nx O\n\n# sent_id = 2\ny O\n", log=log)
    assert facts(log)["comments"] == "2 lines such as '# sent_id = 1' recognised"


@pytest.mark.parametrize("text", ["# speaker Ada\nx NN O\ny NN O\n", "x A O\ny A A\n\n# id A\nz A O\n"])
def test_a_line_that_may_be_a_comment_or_a_word_is_refused(text: str) -> None:
    with pytest.raises(
        HarnessError, match=r"a comment or a word\? Set task.comment='#' .* task.comment=none"
    ):
        parse(text)
    assert not any(w == "#" for s in parse(text, comment="#").sentences for w in s.words)
    assert any(w == "#" for s in parse(text, comment="none").sentences for w in s.words)


def test_no_break_spaces_belong_to_words() -> None:
    text = "\u00a0\tO\nAda\u00a0\tB-PER\n\u3000x\tO\n10\u202f000\tO\n"
    assert parse(text).sentences[0].words == ["\u00a0", "Ada\u00a0", "\u3000x", "10\u202f000"]
    assert parse("O\tAda\u00a0\nO\tx\n", token_column=1, label_column=0).sentences[0].words == [
        "Ada\u00a0",
        "x",
    ]
    assert len(parse("a O\n\u00a0\nb O\n").sentences) == 2


@pytest.mark.parametrize(
    ("text", "question", "settings"),
    [
        (
            "bn/doc 0 0 Ada NN O\nbn/doc 0 1 ran VB O\nbn/doc 0 2 . . O\nbn/doc 0 3 x NN O\n",
            r"first column \('bn/doc'\) is the same in each sentence",
            ["task.token_column=3 ('Ada')", "task.token_column=4 ('NN')"],
        ),
        ("1\tAda\tB-PER\n2\tran\tO\n\n1\tBo\tO\n", "numbers the words", ["task.token_column=1 ('Ada')"]),
        ("1 Ada\n2 ran\n", "numbers the words", ["task.token_column=1", "task.token_column=0"]),
        (
            "O ran\nB-PER Ada\nO .\n",
            "first column holds labels",
            ["task.token_column=1 task.label_column=0 ('ran')", "task.token_column=0 task.label_column=1"],
        ),
    ],
)
def test_a_first_column_that_is_no_word_is_refused(text: str, question: str, settings: list[str]) -> None:
    with pytest.raises(HarnessError, match=question) as e:
        parse(text)
    assert str(e.value).startswith("x.conll:1: ")
    assert all(setting in str(e.value) for setting in settings)
    assert parse(text, token_column=0).sentences


@pytest.mark.parametrize("label", ["-", "_", "?"])
def test_an_unlabelled_file_is_refused(label: str) -> None:
    with pytest.raises(HarnessError, match=f"no labels: all 2 labels in column -1 are '\\{label}'"):
        parse(f"Ada {label}\nran {label}\n")


def test_a_file_of_words_only_is_refused() -> None:
    with pytest.raises(HarnessError, match=r"x.conll:1: 'Ada' has 1 column.*the file has no labels"):
        parse("Ada\nran\n")
    with pytest.raises(HarnessError, match=r"task.format=csv"):
        parse("Ada,O\nran,O\n")


def test_a_header_line_is_left_out() -> None:
    log = ReadLog()
    assert parse("Token\tTag\nAda\tB-PER\n", log=log).sentences[0].words == ["Ada"]
    assert log.excluded == {("x.conll", "header line"): 1}
    assert parse("word NN\nAda NN\n").sentences[0].words == ["word", "Ada"]


def test_bad_rows_skip_their_sentences() -> None:
    log = ReadLog(on_error="skip")
    parsed = parse("a O\nb\nc O\n\nd O\n\ne O O\n", log=log)
    assert [s.words for s in parsed.sentences] == [["d"]]
    assert [row.where for row in log.skipped] == ["x.conll:2", "x.conll:7"]
    assert log.skipped[0].reason.startswith("'b' has 1 column(s)")


def test_lines_of_words_are_known_behind_comments() -> None:
    sentence = parse(AU_PARC, source="x.conllu").sentences[0]
    assert [sentence.where(i) for i in (0, 1, 2, 4, 5)] == [f"x.conllu:{n}" for n in (3, 4, 6, 8, 11)]


ROWS = st.lists(
    st.sampled_from(
        [
            "",
            " ",
            "\t",
            "#",
            "# id = 1",
            "## a",
            "#a\tO",
            "1\t2",
            "a O",
            "a\tB-X",
            "-DOCSTART- O",
            "1-2 a b",
            "\u00a0",
            "a b c",
            "#begin document (x); part 0",
            "1" + "\ta" * 9,
            "1.1" + "\t_" * 9,
            "(X* *)",
            ",",
        ]
    )
    | st.text(max_size=12),
    max_size=12,
)


@given(ROWS, st.sampled_from(["x.conll", "x.conllu"]), st.sampled_from(["raise", "skip"]))
def test_arbitrary_lines_give_sentences_or_an_error(rows: list[str], source: str, on_error: str) -> None:
    try:
        parsed = parse("\n".join(rows), source=source, log=ReadLog(on_error=on_error))
    except HarnessError:
        return
    for s in parsed.sentences:
        assert all(s.words)
        assert all(s.labels)
        assert len(s.words) == len(s.labels) > 0
        # the line of each word is the one that contains it
        lines = "\n".join(rows).split("\n")
        assert all(w in lines[int(s.where(i).rpartition(":")[2]) - 1] for i, w in enumerate(s.words))


@given(st.integers(-12, 12), st.one_of(st.integers(-12, 12), st.sampled_from(["upos", "misc", "x"])), ROWS)
def test_any_columns_give_sentences_or_an_error(token: int, label: int | str, rows: list[str]) -> None:
    try:
        parse("\n".join(rows), source="x.conllu", token_column=token, label_column=label)
        parse("\n".join(rows), token_column=token, label_column=label)
    except HarnessError:
        return
