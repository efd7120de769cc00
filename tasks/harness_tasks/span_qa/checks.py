"""Checks of questions before anything is computed: unit of F1, contexts in several splits, odd contents.

This module does not import torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import regex

from harness.data.reading.log import ReadLog, ambiguous
from harness.data.reading.overlap import text_key
from harness.data.text import split_words
from harness_tasks.span_qa.questions import Question, unlabelled

QuestionSplits = Mapping[str, Sequence[Question]]
SCRIPT_SHARE = 0.3
"""Share of the answers' letters from which a script without blanks around its words matters for F1."""
LONG_SHARE = 0.01
"""Share of answers longer than the longest prediction above which there is a warning."""
_SCRIPTS = {
    "Korean": regex.compile(r"(?=\p{L})\p{Hangul}"),
    "Chinese or Japanese": regex.compile(r"(?=\p{L})[\p{Han}\p{Hiragana}\p{Katakana}]"),
    "Thai, Lao, Khmer or Burmese": regex.compile(r"(?=\p{L})[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"),
}
_LETTER = regex.compile(r"\p{L}")


def decide_unit(splits: QuestionSplits, given: str | None, log: ReadLog) -> str:
    """The unit of F1: as given, else words.

    Raises:
        HarnessError: not given, and the answers are in a script in which particles are written together with
            nouns, or words are not separated: F1 over words is then not the published definition.
    """
    if given is None:
        letters, of = Counter[str](), 0
        for text in {text for questions in splits.values() for q in questions for text, _ in q.answers}:
            of += len(_LETTER.findall(text))
            letters.update({name: len(script.findall(text)) for name, script in _SCRIPTS.items()})
        name, count = letters.most_common(1)[0] if letters else ("", 0)
        if count and count >= SCRIPT_SHARE * of:
            raise ambiguous(
                f"the answers are {name} ({count / of:.0%} of their letters)",
                "is F1 computed over characters or over words",
                {
                    "characters, the official rule of KorQuAD": "task.f1_unit=char",
                    "words between blanks, the rule of SQuAD": "task.f1_unit=word",
                },
            )
    unit = given or "word"
    log.fact("scores", "unit of F1", {"word": "words", "char": "characters"}[unit], given=given is not None)
    return unit


def check_labelled(splits: QuestionSplits, log: ReadLog) -> dict[str, list[Question]]:
    """Return the splits, with the questions of a test split without any answer marked as unlabelled.

    A split whose data state that its questions have no answer is labelled.

    Raises:
        HarnessError: another split has no answer; names its file.
    """
    out = {role: list(questions) for role, questions in splits.items()}
    for role, questions in out.items():
        if not questions or any(q.answers or q.stated for q in questions):
            continue
        if role != "test":
            raise unlabelled(_source(questions[0]), role, len(questions))
        log.warn(
            f"test: none of its {len(questions):,} questions has an answer: they are predicted and not "
            "scored. If the answers have another name, set task.fields.answers=NAME"
        )
        out[role] = [replace(q, labelled=False) for q in questions]
    return out


def _source(question: Question) -> str:
    return question.where.partition(",")[0]


def compare_contexts(splits: QuestionSplits, log: ReadLog) -> None:
    """Warn of contexts and of titled articles that are in several splits."""
    kinds = {
        "contexts": {
            role: {text_key(context) for context in {q.context for q in questions}}
            for role, questions in splits.items()
        },
        "articles": {role: {q.article for q in qs if q.titled} for role, qs in splits.items()},
    }
    names = list(splits)
    for kind, keys in kinds.items():
        for j, split in enumerate(names):
            for other in names[:j]:
                shared = len(keys[split] & keys[other])
                if shared:
                    log.warn(f"{shared} of {len(keys[split])} {split} {kind} are in {other}")


def describe(splits: QuestionSplits, max_answer_tokens: int, log: ReadLog) -> dict[str, list[str]]:
    """What the data card says about each split, with warnings about what looks wrong."""
    return {role: _describe(role, qs, max_answer_tokens, log) for role, qs in splits.items() if qs}


def _describe(role: str, questions: Sequence[Question], longest: int, log: ReadLog) -> list[str]:
    lengths = {text: len(split_words(text)) for q in questions for text, _ in q.answers}
    counts = [len(q.answers) for q in questions if q.answers]
    impossible = sum(q.impossible for q in questions)
    out = [f"contexts: {len({q.context for q in questions}):,}"]
    if articles := len({q.article for q in questions if q.titled}):
        out.append(f"articles: {articles:,}")
    if any(q.labelled for q in questions):
        out.append(f"questions without an answer: {impossible:,}")
    if counts:
        out.append(f"answers per question: {_range(counts)}")
        out.append(f"words per answer: {_range(list(lengths.values()))}")
    long = sum(lengths[text] > longest for q in questions for text, _ in q.answers)
    if long:
        out.append(f"answers longer than max_answer_tokens={longest} words: {long:,}")
        if long >= LONG_SHARE * sum(counts):
            log.warn(
                f"{role}: {long:,} of {sum(counts):,} answers have more than {longest} words and can never "
                "be predicted; increase task.max_answer_tokens"
            )
    if empty := sum(not split_words(q.question) for q in questions):
        log.warn(f"{role}: {empty:,} of {len(questions):,} questions contain no word")
    return out


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
