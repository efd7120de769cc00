"""The classification head over single texts and pairs, and the scores of its predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.data.batch import Batch
from harness.data.text import Example, Text
from harness.data.tokens import EncoderOutput, TokenizedWindow, pooled_size
from harness.errors import HarnessError
from harness.task import HeadInput, Prediction
from harness_tasks.classification.head import ClassificationHead
from harness_tasks.classification.scoring import score
from harness_tasks.classification.task import TextClassification

torch.set_num_threads(1)


def tokenized_window(n: int, *, window: int = 0) -> TokenizedWindow:
    return TokenizedWindow(
        inputs={},
        word_ids=np.arange(n),
        offsets=np.zeros((n, 2), dtype=np.int64),
        sequence_ids=np.zeros(n, dtype=np.int64),
        word_to_token=np.arange(n),
        window=window,
    )


def batch_of(task: TextClassification, gold: list[str], *, sides: int = 1, windows: int = 1) -> Batch:
    items = []
    for i, label in enumerate(gold):
        example = Example(str(i), (Text.from_string("a b"),) * sides, label)
        rows = [tokenized_window(1 + (i + w) % 3, window=w) for w in range(windows)]
        items.append((i, example, [(row,) * sides for row in rows], task.row_targets(example, rows)))
    return Batch.collate(items)


def encode(batch: Batch, hidden: int = 4, *, pooled: bool = False) -> tuple[EncoderOutput, ...]:
    return tuple(
        EncoderOutput(
            torch.randn(*u.mask.shape, hidden), pooler_output=torch.randn(len(u), hidden) if pooled else None
        )
        for u in batch.tokens
    )


@pytest.fixture
def task(tmp_path: Path) -> TextClassification:
    path = tmp_path / "a.csv"
    rows = "".join(f"x{i},a\ny{i},b\n" for i in range(10))
    path.write_text(f"text,label\n{rows}", encoding="utf-8")
    task = TextClassification(train=str(path))
    task.splits()
    return task


@pytest.mark.parametrize("pairs", ["single", "joint", "separate"])
@pytest.mark.parametrize("pooling", ["mean", "concat", "cls"])
def test_the_last_batch_of_one_keeps_its_axis(task: TextClassification, pairs: str, pooling: str) -> None:
    head = task.head(HeadInput(hidden_size=4, pooling=pooling, pooled=False, pairs=pairs, dropout=0.1))
    got = []
    for gold in (["a", "b", "a", "b"], ["a"]):
        batch = batch_of(task, gold, sides=2 if pairs == "separate" else 1)
        outputs = head(encode(batch), batch)
        assert outputs["logits"].shape == (len(gold), 2)
        total, count = head.loss(outputs, batch)
        assert total.ndim == 0
        assert count == len(gold)
        got += head.decode(outputs, batch)
    assert len(got) == 5
    assert all(p.value in "ab" and len(p.scores) == 2 for p in got)


def test_separate_pairs_see_both_texts_their_distance_and_product(task: TextClassification) -> None:
    head = ClassificationHead(HeadInput(3, "mean", True, "separate", 0.0), task.labels)
    batch = batch_of(task, ["a"], sides=2)
    u, v = torch.randn(1, 3), torch.randn(1, 3)
    states = torch.zeros(*batch.tokens[0].mask.shape, 3)
    logits = head((EncoderOutput(states, pooler_output=u), EncoderOutput(states, pooler_output=v)), batch)[
        "logits"
    ]
    expected = torch.cat([u, v, (u - v).abs(), u * v], -1) @ head.output.weight.T + head.output.bias
    torch.testing.assert_close(logits, expected)


def test_pooled_vector_is_used_where_it_was_promised(task: TextClassification) -> None:
    batch = batch_of(task, ["a", "b"])
    encoded = encode(batch, pooled=True)
    with_pooler = ClassificationHead(HeadInput(4, "concat", True, "single", 0.0), task.labels)
    assert encoded[0].pooler_output is not None
    torch.testing.assert_close(
        with_pooler(encoded, batch)["logits"], with_pooler.output(encoded[0].pooler_output)
    )
    without = ClassificationHead(HeadInput(4, "concat", False, "single", 0.0), task.labels)
    assert without.output.in_features == pooled_size(4, "concat")
    with pytest.raises(ValueError, match="pooler_output"):
        with_pooler(encode(batch), batch)


def test_windows_of_an_example_are_averaged_and_counted_once(task: TextClassification) -> None:
    head = ClassificationHead(HeadInput(4, "mean", True, "single", 0.0), task.labels)
    batch = batch_of(task, ["a", "b", "a"], windows=2)
    encoded = encode(batch, pooled=True)
    outputs = head(encoded, batch)
    rows = head.output(encoded[0].pooler_output)
    torch.testing.assert_close(outputs["logits"], rows.view(3, 2, 2).mean(1))
    assert head.loss(outputs, batch)[1] == 3
    assert len(head.decode(outputs, batch)) == 3


def test_loss_is_a_sum_that_micro_batches_add_up_to(task: TextClassification) -> None:
    task.weights = [0.5, 2.0]
    head = task.head(HeadInput(4, "mean", True, "single", 0.0))
    gold = ["a", "b", "unseen", "b"]
    batch = batch_of(task, gold)
    encoded = encode(batch, pooled=True)
    total, count = head.loss(head(encoded, batch), batch)
    assert count == 3
    parts = []
    for i, label in enumerate(gold):
        one = batch_of(task, [label])
        pooled = encoded[0].pooler_output
        assert pooled is not None
        states = EncoderOutput(torch.zeros(*one.tokens[0].mask.shape, 4), pooler_output=pooled[i : i + 1])
        parts.append(head.loss(head((states,), one), one)[0])
    assert torch.isfinite(total)
    torch.testing.assert_close(total, torch.stack(parts).sum())


def test_the_head_learns(task: TextClassification) -> None:
    torch.manual_seed(0)
    head = ClassificationHead(HeadInput(4, "mean", True, "single", 0.0), task.labels)
    batch = batch_of(task, ["a", "b"] * 8)
    direction = torch.tensor([1.0 if e.gold == "a" else -1.0 for e in batch.examples])
    vectors = torch.randn(16, 4) * 0.1 + direction[:, None]
    encoded = (EncoderOutput(torch.zeros(*batch.tokens[0].mask.shape, 4), pooler_output=vectors),)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for _ in range(30):
        total, count = head.loss(head(encoded, batch), batch)
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
    assert [p.value for p in head.decode(head(encoded, batch), batch)] == [e.gold for e in batch.examples]


def test_a_head_before_the_data_is_a_mistake() -> None:
    with pytest.raises(RuntimeError, match="splits"):
        TextClassification().head(HeadInput(4, "mean", False, "single", 0.0))


# ---- scores ------------------------------------------------------------------------------------------


def scored(gold: list[Any], predicted: list[Any], positive: str | None = None) -> dict[str, float]:
    examples = [Example(str(i), (), str(g)) for i, g in enumerate(gold)]
    return score({str(i): Prediction(str(p)) for i, p in enumerate(predicted)}, examples, positive=positive)


def test_macro_f1_looks_at_the_classes_that_occur() -> None:
    got = scored([0, 0, 1, 1, 2], [0, 1, 1, 1, 2])
    assert got["macro_f1"] == pytest.approx(0.8222, abs=5e-5)


@pytest.mark.parametrize(
    ("gold", "predicted"), [([1] * 4, [1] * 4), ([1, 1, 0, 0], [1] * 4), ([1] * 4, [1, 0, 1, 0])]
)
def test_mcc_of_one_class_is_zero_never_nan(gold: list[int], predicted: list[int]) -> None:
    assert scored(gold, predicted)["mcc"] == 0.0


def test_accuracy_is_over_examples_not_batches() -> None:
    predicted = [1, 1, 0, 0, 1, 1, 1, 0, 1]
    assert scored([1] * 9, predicted)["accuracy"] == pytest.approx(6 / 9)


def test_missing_predictions_are_counted_and_named() -> None:
    examples = [Example(str(i), (), "a") for i in range(4)]
    with pytest.raises(HarnessError, match="3 of 4 examples have no prediction: 1, 2, 3"):
        score({"0": Prediction("a")}, examples)
    with pytest.raises(HarnessError, match="no examples"):
        score({}, [])


def test_scores_agree_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for n, k in ((1, 2), (30, 2), (200, 5), (57, 30)):
        gold, predicted = rng.integers(0, k, n).tolist(), rng.integers(0, k, n).tolist()
        got = scored(gold, predicted, positive="1")
        assert got["accuracy"] == pytest.approx(metrics.accuracy_score(gold, predicted), abs=1e-12)
        macro = metrics.f1_score(gold, predicted, average="macro", zero_division=0)
        assert got["macro_f1"] == pytest.approx(macro, abs=1e-12)
        if len({*gold, *predicted}) > 1:
            assert got["mcc"] == pytest.approx(metrics.matthews_corrcoef(gold, predicted), abs=1e-12)
        binary = metrics.f1_score([g == 1 for g in gold], [p == 1 for p in predicted], zero_division=0)
        assert got["f1"] == pytest.approx(binary, abs=1e-12)


def test_scores_agree_with_torchmetrics() -> None:
    functional = pytest.importorskip("torchmetrics.functional.classification")
    generator = torch.Generator().manual_seed(0)
    gold = torch.randint(0, 4, (300,), generator=generator)
    predicted = torch.where(torch.rand(300, generator=generator) < 0.6, gold, gold.roll(1))
    got = scored(gold.tolist(), predicted.tolist())
    accuracy = functional.multiclass_accuracy(predicted, gold, num_classes=4, average="micro")
    macro = functional.multiclass_f1_score(predicted, gold, num_classes=4, average="macro")
    mcc = functional.multiclass_matthews_corrcoef(predicted, gold, num_classes=4)
    expected = [accuracy.item(), macro.item(), mcc.item()]
    assert [got["accuracy"], got["macro_f1"], got["mcc"]] == pytest.approx(expected, abs=1e-6)
