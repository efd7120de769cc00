"""Targets, head and decoding on hand-made tokens; and that body and head learn together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from harness.bodies.attention_flow import AttentionFlow
from harness.data.batch import Batch
from harness.data.targets import IGNORE_INDEX
from harness.data.text import Example, Text
from harness.data.tokens import EncoderOutput, TokenizedWindow
from harness.errors import HarnessError
from harness.task import HeadInput
from harness_tasks.span_qa import targets
from harness_tasks.span_qa.task import SpanQA

torch.set_num_threads(1)
WIDTH = 8


def make_row(
    context: Text, words: range, *, question: Text | None = None, owned: range | None = None, window: int = 0
) -> TokenizedWindow:
    """One token a word; with a question the row is [CLS] question [SEP] context [SEP]."""
    ids, offsets, segment = [], [], []

    def add(word: int, span: tuple[int, int], which: int) -> None:
        ids.append(word)
        offsets.append(span)
        segment.append(which)

    if question is not None:
        add(-1, (0, 0), -1)
        for w, span in enumerate(question.spans):
            add(w, span, 0)
        add(-1, (0, 0), -1)
    start = len(ids)
    for w in words:
        add(w, context.spans[w], 0 if question is None else 1)
    if question is not None:
        add(-1, (0, 0), -1)
    word_to_token = np.full(len(context), -1)
    for w in owned if owned is not None else words:
        word_to_token[w] = start + w - words.start
    return TokenizedWindow(
        inputs={"input_ids": np.arange(len(ids))},
        word_ids=np.array(ids, dtype=np.int64),
        offsets=np.array(offsets, dtype=np.int64).reshape(-1, 2),
        sequence_ids=np.array(segment, dtype=np.int64),
        word_to_token=word_to_token,
        window=window,
    )


def example(context: str, answer: str | None, question: str = "which one", key: str = "q") -> Example:
    start = context.index(answer) if answer else 0
    gold = [{"text": answer, "start": start, "end": start + len(answer)}] if answer else []
    return Example(key, (Text.from_string(question), Text.from_string(context)), {"answers": gold})


def task(*, unanswerable: bool = False, **options: Any) -> SpanQA:
    made = SpanQA("toy", **options)
    made._unanswerable = unanswerable
    return made


def spec(pairs: str) -> HeadInput:
    return HeadInput(hidden_size=WIDTH, pooling="max", pooled=False, pairs=pairs, dropout=0.0)


def as_batch(t: SpanQA, items: Sequence[tuple[Example, list[TokenizedWindow]]], *, joint: bool) -> Batch:
    def sides(e: Example, row: TokenizedWindow) -> tuple[TokenizedWindow, ...]:
        question = e.texts[0]
        return (row,) if joint else (make_row(question, range(len(question))), row)

    return Batch.collate(
        [(i, e, [sides(e, r) for r in rows], t.row_targets(e, rows)) for i, (e, rows) in enumerate(items)]
    )


def outputs_of(
    start: list[list[float]], end: list[list[float]], null: float = float("-inf")
) -> dict[str, Tensor]:
    return {
        "start": torch.tensor(start),
        "end": torch.tensor(end),
        "null": torch.full((len(start), 2), null / 2 if null != float("-inf") else null),
    }


def values(t: list[dict[str, np.ndarray]]) -> list[tuple[int, int]]:
    return [(int(r["start"]), int(r["end"])) for r in t]


CONTEXT = "the oak grows very slowly here now"  # words 0 to 6
WINDOWS = [(range(4), range(3)), (range(2, 6), range(3, 5)), (range(4, 7), range(5, 7))]


def windows(e: Example, *, joint: bool) -> list[TokenizedWindow]:
    question = e.texts[0] if joint else None
    return [
        make_row(e.texts[1], words, question=question, owned=owned, window=i)
        for i, (words, owned) in enumerate(WINDOWS)
    ]


def test_targets_by_window() -> None:
    e = example(CONTEXT, "very slowly")  # words 3 and 4: the first window holds half of it
    joint, apart = windows(e, joint=True), windows(e, joint=False)
    null, off = targets.NULL, IGNORE_INDEX
    assert values(task().row_targets(e, joint)) == [(null, null), (5, 6), (null, null)]
    assert values(task().row_targets(e, apart)) == [(off, off), (1, 2), (off, off)]
    assert values(task(unanswerable=True).row_targets(e, apart)) == [(null, null), (1, 2), (null, null)]


def test_an_answer_in_two_windows_is_a_target_in_both() -> None:
    e = example(CONTEXT, "grows very")
    assert values(task().row_targets(e, windows(e, joint=False))) == [(2, 3), (0, 1), (-100, -100)]


def test_no_answer_is_null_and_an_answer_on_the_first_word_is_not() -> None:
    t = task(unanswerable=True)
    a, b = example("Oak grows slowly.", "Oak", key="a"), example("Oak grows slowly.", None, key="b")
    rows = [make_row(a.texts[1], range(4), question=a.texts[0])]
    assert values(t.row_targets(a, rows)) == [(4, 4)]  # [CLS] which one [SEP] Oak
    assert values(t.row_targets(b, rows)) == [(targets.NULL, targets.NULL)]


def test_the_smallest_span_of_units_that_covers_the_answer() -> None:
    e = example("it cost 1939 dollars", "93")
    assert values(task().row_targets(e, [make_row(e.texts[1], range(4))])) == [(2, 2)]
    e = example("it cost 1939 dollars", "t 1939 d")
    assert values(task().row_targets(e, [make_row(e.texts[1], range(4))])) == [(1, 3)]


def test_an_answer_which_no_unit_covers_is_never_trained_on() -> None:
    e = example("oak\u200b elm", "\u200b")
    for rows in ([make_row(e.texts[1], range(2))], [make_row(e.texts[1], range(2), question=e.texts[0])]):
        assert values(task(unanswerable=True).row_targets(e, rows)) == [(-100, -100)]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("unanswerable", [True, False])
def test_loss_is_the_mean_of_two_cross_entropies(joint: bool, unanswerable: bool) -> None:
    torch.manual_seed(0)
    t = task(unanswerable=unanswerable)
    items = [example(CONTEXT, "very slowly", key="a"), example(CONTEXT, "oak", key="b")]
    batch = as_batch(t, [(e, windows(e, joint=joint)) for e in items], joint=joint)
    head = t.head(spec("joint" if joint else "separate"))
    tokens = batch.tokens[-1]
    encoded = tuple(EncoderOutput(torch.randn(*u.mask.shape, WIDTH)) for u in batch.tokens)
    out = head(encoded, batch)
    loss, count = head.loss(out, batch)

    scores = head.scores(encoded[-1].last_hidden_state)
    want, n = torch.zeros(()), 0
    for row in range(len(tokens)):
        if batch.targets["start"][row] == -100:
            continue
        n += 1
        keep = [i for i in range(tokens.mask.shape[1]) if tokens.sequence_ids[row, i] == int(joint)]
        for side, name in enumerate(("start", "end")):
            options = [scores[row, i, side] for i in keep]
            if joint:
                options.append(scores[row, 0, side])
            elif unanswerable:
                options.append(torch.zeros(()))
            target = int(batch.targets[name][row])
            at = len(keep) if target == targets.NULL else keep.index(target)
            want = want - torch.log_softmax(torch.stack(options), 0)[at] / 2
    assert count == n == (6 if joint or unanswerable else 2)
    torch.testing.assert_close(loss, want)
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in head.parameters())


def test_a_batch_without_any_target_costs_nothing() -> None:
    e = example("oak\u200b elm", "\u200b")
    batch = as_batch(task(), [(e, [make_row(e.texts[1], range(2))])], joint=False)
    head = task().head(spec("separate"))
    loss, count = head.loss(head((EncoderOutput(torch.randn(1, 2, WIDTH)),) * 2, batch), batch)
    assert (loss.item(), count) == (0.0, 0)
    loss.backward()


@pytest.mark.parametrize("joint", [True, False])
def test_decoding_equals_a_search_over_all_spans(joint: bool) -> None:
    torch.manual_seed(1)
    t = task(max_answer_tokens=3)
    context = " ".join(f"w{i}" for i in range(9))
    e = example(context, "w2")
    rows = [make_row(e.texts[1], range(9), question=e.texts[0] if joint else None)]
    batch = as_batch(t, [(e, rows)], joint=joint)
    head = t.head(spec("joint" if joint else "separate"))
    with torch.no_grad():
        out = head(tuple(EncoderOutput(3 * torch.randn(*u.mask.shape, WIDTH)) for u in batch.tokens), batch)
    (got,) = head.decode(out, batch)
    shift = 4 if joint else 0
    spans = e.texts[1].spans
    every = sorted(
        (-float(out["start"][0, a + shift] + out["end"][0, b + shift]), spans[a][0], spans[b][1])
        for a in range(9)
        for b in range(a, min(a + 3, 9))
    )
    assert [(n["start"], n["end"]) for n in got.extra["nbest"]] == [(a, b) for _, a, b in every[:5]]
    assert got.scores == pytest.approx([-s for s, _, _ in every[:5]])
    assert got.value == context[every[0][1] : every[0][2]] == got.extra["nbest"][0]["text"]
    assert (got.extra["start"], got.extra["end"]) == every[0][1:]


def test_question_and_specials_are_never_an_answer() -> None:
    t = task()
    e = example("oak elm", "oak", question="a much longer question than its context")
    batch = as_batch(t, [(e, [make_row(e.texts[1], range(2), question=e.texts[0])])], joint=True)
    head = t.head(spec("joint"))
    width = batch.tokens[0].mask.shape[1]
    out = outputs_of([[9.0] * width], [[9.0] * width], null=50.0)
    (got,) = head.decode(out, batch)
    assert {n["text"] for n in got.extra["nbest"]} == {"oak", "elm", "oak elm"}


def test_a_word_counts_only_in_the_window_that_owns_it() -> None:
    t = task()
    e = example(CONTEXT, "very slowly")
    rows = windows(e, joint=False)
    batch = as_batch(t, [(e, rows)], joint=False)
    head = t.head(spec("separate"))
    # "very" (word 3) shines in the first window, which shows it but does not own it
    start = [[0.0, 0.0, 0.0, 9.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
    end = [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
    (got,) = head.decode(outputs_of(start, end), batch)
    assert (got.value, got.scores[0]) == ("very slowly", 6.0)
    # but a span that begins in its own window may end beyond what the window owns
    start[0], end[0] = [0.0, 0.0, 5.0, 9.0], [0.0, 0.0, 0.0, 5.0]
    (got,) = head.decode(outputs_of(start, end), batch)
    assert (got.value, got.scores[0]) == ("grows very", 10.0)


def test_a_span_that_its_owner_cuts_off_counts_where_it_is_whole() -> None:
    t = task()
    e = example(
        CONTEXT, "grows very slowly"
    )  # its first word is owned by the first window, which ends at "very"
    rows = windows(e, joint=False)
    batch = as_batch(t, [(e, rows)], joint=False)
    start = [[0.0] * 4, [9.0, 0.0, 0.0, 0.0], [0.0] * 4]
    end = [[0.0] * 4, [8.0, 0.0, 5.0, 0.0], [0.0] * 4]
    (got,) = t.head(spec("separate")).decode(outputs_of(start, end), batch)
    assert (got.value, got.scores[0]) == (
        "grows very slowly",
        14.0,
    )  # "grows" alone, 17, belongs to its owner


def test_a_last_batch_of_one_keeps_its_axis() -> None:
    t = task()
    head = t.head(spec("separate"))
    predictions = []
    items = [example("oak elm ash", w, key=w) for w in ("oak", "elm", "ash", "oak elm", "elm ash")]
    for part in (items[:4], items[4:]):
        batch = as_batch(t, [(e, [make_row(e.texts[1], range(3))]) for e in part], joint=False)
        out = head(
            (
                EncoderOutput(torch.randn(len(part), 2, WIDTH)),
                EncoderOutput(torch.randn(len(part), 3, WIDTH)),
            ),
            batch,
        )
        assert out["start"].shape == (len(part), 3)
        predictions += head.decode(out, batch)
    assert len(predictions) == 5
    one = example("oak", "oak", question="?")
    batch = as_batch(t, [(one, [make_row(one.texts[1], range(1))])], joint=False)
    out = head((EncoderOutput(torch.randn(1, 1, WIDTH)),) * 2, batch)
    assert [p.value for p in head.decode(out, batch)] == ["oak"]


def test_null_wins_only_beyond_the_threshold() -> None:
    e = example("oak elm", "oak")
    batch = as_batch(task(unanswerable=True), [(e, [make_row(e.texts[1], range(2))])], joint=False)
    out = outputs_of([[2.0, 0.0]], [[2.0, 0.0]], null=5.0)
    for threshold, want in ((0.0, ""), (0.99, ""), (1.0, "oak"), (2.0, "oak")):
        head = task(unanswerable=True, null_threshold=threshold).head(spec("separate"))
        (got,) = head.decode(out, batch)
        assert got.value == want
        assert got.extra["null_score"] == 5.0
        assert got.extra["null_margin"] == pytest.approx(1.0)
        assert got.extra["nbest"][0]["text"] == "oak"
        assert (got.extra["start"] is None) == (want == "")
    (got,) = task().head(spec("separate")).decode(out, batch)
    assert got.value == "oak"


def test_null_of_an_example_is_its_lowest_over_the_windows() -> None:
    e = example(CONTEXT, None)
    t = task(unanswerable=True)
    batch = as_batch(t, [(e, windows(e, joint=True))], joint=True)
    width = batch.tokens[0].mask.shape[1]
    out = outputs_of([[0.0] * width] * 3, [[0.0] * width] * 3)
    out["null"] = torch.tensor([[9.0, 9.0], [-1.0, -2.0], [5.0, 5.0]])
    (got,) = t.head(spec("joint")).decode(out, batch)
    assert got.extra["null_score"] == -3
    assert got.value != ""


def test_a_context_without_a_usable_unit_is_answered_with_nothing() -> None:
    e = example("oak", "oak")
    row = make_row(e.texts[1], range(1))
    row.word_to_token[:] = row.word_ids[:] = -1
    batch = as_batch(task(), [(e, [row])], joint=False)
    (got,) = task().head(spec("separate")).decode(outputs_of([[1.0]], [[1.0]]), batch)
    assert (got.value, got.scores, got.extra["nbest"]) == ("", (), [])


def test_the_learned_null_is_there_only_where_it_is_used() -> None:
    def names(pairs: str, *, unanswerable: bool) -> set[str]:
        return {n for n, _ in task(unanswerable=unanswerable).head(spec(pairs)).named_parameters()}

    assert "null" in names("separate", unanswerable=True)
    for pairs, unanswerable in (("joint", True), ("joint", False), ("separate", False)):
        assert names(pairs, unanswerable=unanswerable) == {"scores.weight", "scores.bias"}


def test_joint_rows_need_a_special_unit() -> None:
    e = example("oak elm", "oak")
    row = make_row(e.texts[1], range(2), question=e.texts[0])
    row.sequence_ids[row.sequence_ids < 0] = 0
    batch = as_batch(task(), [(e, [row])], joint=True)
    with pytest.raises(HarnessError, match="no special token"):
        task().head(spec("joint"))((EncoderOutput(torch.randn(1, len(row), WIDTH)),), batch)


def test_head_needs_the_data_to_have_been_read() -> None:
    with pytest.raises(RuntimeError, match="splits"):
        SpanQA("x").head(spec("joint"))


class Copying(nn.Module):
    """Table, attention flow and head: which word of the context comes after the word of the question?"""

    def __init__(self, t: SpanQA, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, 16)
        self.body = AttentionFlow(16, hidden_size=16, dropout=0.0)
        self.head = t.head(HeadInput(self.body.hidden_size, "max", False, "separate", 0.0))

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        encoded = tuple(EncoderOutput(self.table(u.inputs["input_ids"])) for u in batch.tokens)
        return self.head(self.body(encoded, batch.tokens), batch)


def copying_batch(t: SpanQA, vocabulary: int, n: int, rng: np.random.Generator) -> Batch:
    items = []
    for i in range(n):
        length = int(rng.integers(5, 12))
        words = rng.permutation(vocabulary)[:length]
        asked = int(rng.integers(0, length - 1))
        texts = tuple(Text.from_words([f"w{w}" for w in side]) for side in ([words[asked]], words))
        start, end = texts[1].spans[asked + 1]
        gold = {"answers": [{"text": f"w{words[asked + 1]}", "start": start, "end": end}]}
        rows = []
        for text, ids in zip(texts, (words[asked : asked + 1], words), strict=True):
            row = make_row(text, range(len(text)))
            row.inputs["input_ids"] = ids.astype(np.int64)
            rows.append(row)
        e = Example(str(i), texts, gold)
        items.append((i, e, [tuple(rows)], t.row_targets(e, rows[1:])))
    return Batch.collate(items)


def test_attention_flow_and_head_learn_to_copy_what_follows_the_asked_word() -> None:
    torch.manual_seed(0)
    rng, t = np.random.default_rng(0), task()
    model = Copying(t, 20)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(70):
        batch = copying_batch(t, 20, 32, rng)
        loss, count = model.head.loss(model(batch), batch)
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()
    batch = copying_batch(t, 20, 100, rng)
    with torch.no_grad():
        predictions = model.head.decode(model(batch), batch)
    by_id = {e.id: p for e, p in zip(batch.examples, predictions, strict=True)}
    assert t.score(by_id, batch.examples)["exact_match"] > 0.9
