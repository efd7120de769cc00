"""Reading column files as in the CoNLL shared tasks: one token per line, a blank line after each sentence.

A line of blanks ends a sentence, lines end in LF or CRLF, and ``-DOCSTART-`` lines start a document and are
not tokens. Columns are separated by tabs if most lines contain a tab, otherwise by runs of blanks and tabs;
in a tab-separated file a token may be a blank. Only ASCII blanks are cut from tokens: a no-break space is a
token or part of one. Ranges (``3-4``) and empty nodes (``5.1``) of CoNLL-U are no words. This module imports
neither torch nor datasets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from harness.data.reading.files import open_text
from harness.data.reading.log import ReadLog, ambiguous
from harness.errors import HarnessError
from harness_tasks.tagging.forms import WORD_ID, ColumnForm, ColumnLayout, cut, is_docstart, recognise_form
from harness_tasks.tagging.schemes import OUTSIDE, split_label

WORD_NAMES = ("tokens", "words", "token", "word", "form")
LABEL_NAMES = ("ner_tags", "tags", "labels", "pos_tags", "upos", "tag", "label", "ner", "ner_tag", "pos")
PLAIN_COLUMNS = ("lemma", "upos", "xpos", "feats", "deprel")
"""Columns of CoNLL-U whose labels are no entities."""
UNLABELLED = {"-", "_", "?"}
"""A file that has no other labels is not labelled."""
_TAGS = re.compile(r"# ?tags\s*=(.*)")
_ASCII_BLANKS = " \t\r\n"
_MANY_WORDS = 20
"""From this number of words on, first columns of numbers are taken for ids even if they do not count."""


@dataclass(slots=True)
class Sentence:
    """One sentence.

    Attributes:
        words, labels: equally many.
        line: number of the first word's line, or of the row of a table.
        tags: slices, from a comment line ``# tags = one two`` before the first word.
        source: the file, for messages.
        unit: of ``line`` in a table (``line``, ``row``); empty in a column file.
        gaps: numbers of words before which a line was no word.
    """

    words: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    line: int = 0
    tags: tuple[str, ...] = ()
    source: str = field(default="", compare=False)
    unit: str = field(default="", compare=False)
    gaps: list[int] = field(default_factory=list, compare=False)

    def where(self, word: int) -> str:
        """Return file and line of a word, for messages."""
        if self.unit:
            return f"{self.source}, {self.unit} {self.line}, word {word + 1}"
        return f"{self.source}:{self.line + word + sum(gap <= word for gap in self.gaps)}"


@dataclass(slots=True)
class Parsed:
    """Content of a file; ``documents`` counts ``-DOCSTART-`` lines, ``comments`` comment lines; ``kind`` is
    that of the file's form; ``plain`` says that the labels are known to be no entities."""

    sentences: list[Sentence] = field(default_factory=list)
    documents: int = 0
    comments: int = 0
    kind: str = "columns"
    plain: bool = False


def read_columns(
    path: Path, *, layout: ColumnLayout | None = None, encoding: str = "auto", log: ReadLog | None = None
) -> Parsed:
    """Read one column file; ``encoding`` and ``log`` as in :func:`harness.data.reading.files.decode`.

    Raises:
        HarnessError: a row with too few or too many columns or without a token, naming file, line and
            content; a file without any sentence or label, or whose columns can be read in several ways.
    """
    log = log or ReadLog()
    with open_text(path, encoding=encoding, log=log) as f:
        parsed = parse_lines(f, source=str(path), layout=layout or ColumnLayout(), log=log)
    if not parsed.sentences:
        raise HarnessError(f"{path}: no sentences; expected one token and its label per line")
    return parsed


def parse_lines(
    lines: Iterable[str], *, source: str, layout: ColumnLayout, log: ReadLog | None = None
) -> Parsed:
    """Parse lines; ``source`` names the file in error messages, ``log`` receives how it was read."""
    log = log or ReadLog()
    rows = [line.rstrip(_ASCII_BLANKS) for line in lines]
    form = recognise_form(rows, layout, source, log)
    parser = _Parser(form, source, log)
    for number, row in enumerate(rows, start=1):
        parser.line(number, row)
    parser.close()
    parser.report()
    parsed = parser.parsed
    if parsed.sentences:
        _check_labelled(parsed, form, source)
        _check_columns(parsed, form, layout, cut(rows[parsed.sentences[0].line - 1], form.tab))
    parsed.plain = form.kind == "conllu" and form.title(form.label) in PLAIN_COLUMNS
    return parsed


class _Parser:
    """Collects the sentences of a file line by line."""

    def __init__(self, form: ColumnForm, source: str, log: ReadLog) -> None:
        self.form, self.source, self.log = form, source, log
        self.parsed = Parsed(kind=form.kind)
        self._sentence = Sentence(source=source)
        self._bad = False
        self._first = True
        self._ranges = self._empty_nodes = self._headers = 0
        self._comment = ""
        # "_" is a value of these columns, and no label in others
        self._underscore = form.title(form.label) in ("feats", "misc", "deps") or form.labels == {"_"}

    def line(self, number: int, row: str) -> None:
        """Read one line without its end.

        Raises:
            HarnessError: a malformed row, unless such rows are skipped.
        """
        if not row or (row.isspace() and "\t" not in row) or is_docstart(row):
            self.parsed.documents += is_docstart(row)
            self.close()
            return
        where = f"{self.source}:{number}"
        if self.form.is_comment(row, first=not self._sentence.words, where=where):
            self.parsed.comments += 1
            self._comment = self._comment or row
            tags = _TAGS.match(row)
            self._sentence.tags += tuple(tags[1].split()) if tags else ()
            self._gap()
            return
        problem = self._word(number, row)
        if problem:
            self._bad = True
            self.log.skip(where, HarnessError(f"{where}: {row!r:.200} {problem}"))

    def close(self) -> None:
        """End the sentence."""
        if self._sentence.words and not self._bad:
            self.parsed.sentences.append(self._sentence)
        self._sentence, self._bad = Sentence(source=self.source), False

    def report(self) -> None:
        """Log comments, and lines that are no words."""
        if self._comment and self.form.comment is None:
            n = self.parsed.comments
            self.log.recognised(self.source, "comments", f"{n} lines such as {self._comment!r:.40}")
        self.log.exclude(self.source, "ranges of multiword tokens, such as 3-4", self._ranges)
        self.log.exclude(self.source, "empty nodes, such as 5.1", self._empty_nodes)
        self.log.exclude(self.source, "header line", self._headers)

    def _word(self, number: int, row: str) -> str:
        """Add the row's word; return what is wrong with the row, if anything."""
        cells = self.form.cells(row)
        if cells is None:
            return self.form.complaint(row)
        token, label = cells[self.form.token], cells[self.form.label].strip()
        token = token.strip(" ") or token
        if not token or not label:
            return "has an empty token or label; correct the line"
        if self.form.kind == "conllu" and (problem := self._id(cells[0], label)) is not None:
            self._gap()
            return problem
        if self._first and self._is_header(token, label):
            self._headers += 1
            self._first = False
            return ""
        self._first = False
        self._sentence.line = self._sentence.line or number
        self._sentence.words.append(token)
        self._sentence.labels.append(label)
        return ""

    def _id(self, word_id: str, label: str) -> str | None:
        """Check the id of a CoNLL-U row: "" for a row that is no word, None for a word."""
        expected = len(self._sentence.words) + 1
        if not WORD_ID.fullmatch(word_id):
            return "does not begin with an id (1, 3-4 or 5.1) as in CoNLL-U; correct it, or task.conllu=false"
        if "-" in word_id:
            self._ranges += 1
            return ""
        if "." in word_id:
            self._empty_nodes += 1
            return ""
        if not self._bad and int(word_id[:9]) != expected:
            return f"has the id {word_id}, expected {expected}; a blank line ends each sentence"
        if label == "_" and not self._underscore:
            return f"has no label in column {self.form.title(self.form.label)} ('_'); correct it"
        return None

    def _is_header(self, token: str, label: str) -> bool:
        return token.lower() in WORD_NAMES and label.lower() in (*LABEL_NAMES, "ne_tag", "ne")

    def _gap(self) -> None:
        if self._sentence.words:
            self._sentence.gaps.append(len(self._sentence.words))


def _check_labelled(parsed: Parsed, form: ColumnForm, source: str) -> None:
    labels = {label for s in parsed.sentences for label in s.labels}
    if labels <= UNLABELLED:
        shown = " or ".join(map(repr, sorted(labels)))
        n = sum(len(s.labels) for s in parsed.sentences)
        which = form.title(form.label)
        raise HarnessError(
            f"{source}: no labels: all {n} labels in column {which} are {shown}. "
            "Set task.label_column, or leave an unlabelled split out to have it cut from train"
        )


def _check_columns(parsed: Parsed, form: ColumnForm, layout: ColumnLayout, example: list[str]) -> None:
    """Refuse words that are ids of words or documents, or labels."""
    if layout.token_column is not None or form.kind != "columns":
        return
    sentences = parsed.sentences
    words = {word for s in sentences for word in s.words}
    where = f"{sentences[0].source}:{sentences[0].line}"
    if all(map(WORD_ID.fullmatch, words)) and _counts(sentences, form.width):
        question = f"the first column numbers the words ({example[0]!r}); which column is the word"
    elif form.width > 2 and _constant(sentences):
        question = f"the first column ({example[0]!r:.30}) is the same in each sentence; which is the word"
    elif layout.label_column is None and _labels_first(words, parsed):
        raise ambiguous(
            where,
            f"the first column holds labels ({example[0]!r:.30}); which column is the word",
            {
                f"{example[-1]!r:.30}": f"task.token_column={form.width - 1} task.label_column=0",
                f"{example[0]!r:.30}": f"task.token_column=0 task.label_column={form.width - 1}",
            },
        )
    else:
        return
    label = form.label % form.width
    columns = [i for i, cell in enumerate(example) if i and (form.width == 2 or i != label)]
    plausible = [i for i in columns if not WORD_ID.fullmatch(example[i]) and example[i] not in UNLABELLED]
    raise ambiguous(
        where, question, {f"{example[i]!r:.30}": f"task.token_column={i}" for i in (*plausible[:4], 0)}
    )


def _counts(sentences: list[Sentence], width: int) -> bool:
    """Whether words that are numbers count the words of their sentence, or are too many to be words."""
    if width > 2 and sum(len(s.words) for s in sentences) >= _MANY_WORDS:
        return True
    if all(len(s.words) == 1 for s in sentences):
        return False
    return any(
        all(word == str(i) for s in sentences for i, word in enumerate(s.words, start=start))
        for start in (0, 1)
    )


def _constant(sentences: list[Sentence]) -> bool:
    long = [s for s in sentences if len(s.words) > 1]
    return sum(len(s.words) for s in long) > 3 and all(len(set(s.words)) == 1 for s in long)


def _labels_first(words: set[str], parsed: Parsed) -> bool:
    def entities_only(labels: Iterable[str]) -> bool:
        return all(label == OUTSIDE or ("-" in label and split_label(label)[0]) for label in labels)

    if OUTSIDE not in words or len(words) < 2 or not entities_only(words):
        return False
    return not entities_only(label for s in parsed.sentences for label in s.labels)
