"""Targets and decoding through the bundled encoders' own tokenizers: what is trained on can be predicted."""

from __future__ import annotations

import pytest
import torch

from harness.core.paths import mini_dir
from harness.data.tokenizer import WindowOptions
from harness.encoders.loading import load_encoder
from harness.task import HeadInput
from harness.training.dataloader import collate, make_items
from harness.training.sequences import Sequences
from harness_tasks.span_qa.head import SpanHead
from harness_tasks.span_qa.task import SpanQA

torch.set_num_threads(1)
DATA = mini_dir() / "world" / "data" / "qa"


@pytest.mark.parametrize(
    ("encoder", "joint", "max_length"),
    [("mini_static", False, None), ("mini_static", False, 16), ("mini_bert", False, 24),
     ("mini_bert", True, 128), ("mini_bert", True, 32), ("mini_gpt", True, 40)],
)  # fmt: skip
def test_scores_that_peak_at_the_targets_give_the_answers(
    encoder: str, joint: bool, max_length: int | None
) -> None:
    task = SpanQA("mini_qa", train=str(DATA / "train.json"), test=str(DATA / "test.json"), dev="none")
    examples = task.splits(limit=100).test
    tokenizer = load_encoder(encoder).tokenizer
    sequences = Sequences.of(examples, joint=joint)
    windows = sequences.tokenize(
        tokenizer, WindowOptions(max_length=max_length, stride=8, max_first=task.max_first)
    )
    items = make_items(examples, sequences, windows, task=task)
    assert max_length is None or max(len(item.rows) for item in items) > 1 or max_length == 128
    head = SpanHead(HeadInput(4, "max", False, "joint" if joint else "separate", 0.0), unanswerable=False)
    batch = collate(items, range(len(items)), dict(tokenizer.pad))
    context = head._context(batch.tokens[-1])
    rows = torch.arange(len(context))
    outputs = {"null": torch.zeros(len(context), 2)}
    for side in ("start", "end"):
        target = batch.targets[side]
        held = target >= 0
        assert context[rows[held], target[held]].all()
        scores = torch.zeros(context.shape)
        scores[rows[held], target[held]] = 10.0
        outputs[side] = scores.masked_fill(~context, float("-inf"))
    predictions = dict(zip([e.id for e in examples], head.decode(outputs, batch), strict=True))
    assert {k: p.value for k, p in predictions.items()} == {
        e.id: e.gold["answers"][0]["text"] for e in examples
    }
    assert task.score(predictions, examples) == {"exact_match": 1.0, "f1": 1.0}
