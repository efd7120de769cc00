"""Ensembles: averaged probabilities of every kind of task, checks of the members, and the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.cli.ensemble import by_seed
from harness.cli.main import main
from harness.data.text import Example, Text
from harness.ensemble import combine
from harness.errors import HarnessError
from harness.records.parts import TaskConfig
from harness.records.predictions import read_predictions, write_predictions
from harness.records.record import Costs, Record, read_record, write_config, write_record
from harness.task import Averages, Prediction
from harness_tasks.averaging import log_mean
from harness_tasks.classification.averaging import average_classes
from harness_tasks.span_qa.averaging import average_spans
from harness_tasks.tagging.averaging import average_labels
from tests.helpers.cells import make_cell

Scores = Callable[[int], list[float]]
LABELS = ["O", "B-X", "I-X"]


def softmax(scores: Any) -> np.ndarray:
    values = np.exp(np.asarray(scores, dtype=float))
    return np.asarray(values / values.sum(axis=-1, keepdims=True))


def member(folder: Path, scores: Scores, *more: str, encoder: str = "mini_static", **fields: Any) -> Path:
    """A complete cell of ``mini_topic`` whose i-th example of a split has the scores ``scores(i)``."""
    cell = make_cell(folder, "task=mini_topic", f"encoder={encoder}", "strategy=frozen", "limit=6", *more)
    task = cell.task.build()
    splits = task.splits(limit=cell.options.limit)
    cell.folder.mkdir(parents=True, exist_ok=True)
    predictions, scored = {}, {}
    for name, examples in (("dev", splits.dev), ("test", splits.test)):
        predicted = {
            e.id: Prediction(task.labels[int(np.argmax(scores(i)))], scores(i))
            for i, e in enumerate(examples)
        }
        predictions[name], scored[name] = (examples, predicted), task.score(predicted, examples)
    record = Record(
        status="complete",
        task=task.name,
        encoder=encoder,
        strategy="frozen",
        cell=cell.id,
        seed=cell.seed,
        kind=task.kind,
        metric=task.metric,
        dev=scored["dev"],
        test=scored["test"],
        partial=cell.options.limit,
        data=cell.files["task"][:12],
        n_train=6,
        parameters=10,
        costs=Costs(train_seconds=2.0, total_seconds=5.0, examples_per_second=3.0, device="cpu", host="here"),
        coverage={"words": 9.0, f"only_{encoder}": 1.0},
    )
    for key, value in fields.items():
        setattr(record, key, value)
    write_config(cell.folder, cell.resolved)
    write_predictions(cell.folder, predictions)
    write_record(cell.folder, record)
    return cell.folder


def two(folder: Path, *more: str) -> list[Path]:
    first = member(folder, lambda i: [2.0, 1.9, 0.0, 0.0, 0.0, 0.0], *more)
    return [first, member(folder, lambda i: [0.0, 1.9, 2.0, 0.0, 0.0, 0.0], *more, encoder="mini_gpt")]


def test_the_mean_can_differ_from_every_member(tmp_path: Path) -> None:
    folders = two(tmp_path)
    folder, record = combine(folders)
    classes = [{row["prediction"] for row in read_predictions(f)} for f in (*folders, folder)]
    assert len(set.union(*classes)) == len(classes) == 3
    row = read_predictions(folder)[0]
    per_member = [softmax([2, 1.9, 0, 0, 0, 0]), softmax([0, 1.9, 2, 0, 0, 0])]
    np.testing.assert_allclose(softmax(row["scores"]), np.mean(per_member, axis=0), atol=1e-6)
    assert record.test["accuracy"] == np.mean(
        [r["prediction"] == r["gold"] for r in read_predictions(folder)]
    )
    assert set(record.dev) == set(record.test)
    assert len(read_predictions(folder, split="dev")) == record.n_dev == 6


def test_probabilities_are_averaged_and_not_logits() -> None:
    """The logits of a member may be shifted by any constant, so their mean would be meaningless."""
    examples = [Example(str(n), (Text.from_string("a"),), "0") for n in range(2)]
    forward, backward = [[0.7, 0.3], [0.6, 0.4]], [[0.4, 0.6], [0.1, 0.9]]
    shift = 5.0  # logits of one member may lie anywhere
    members = [
        {
            e.id: Prediction("?", (np.log(p) + by).tolist())
            for e, p in zip(examples, probabilities, strict=True)
        }
        for probabilities, by in ((forward, 0.0), (backward, shift))
    ]
    joined = average_classes(members, examples, labels=["0", "1"])
    np.testing.assert_allclose(
        [softmax(joined[e.id].scores) for e in examples], [[0.55, 0.45], [0.35, 0.65]], atol=1e-9
    )
    assert [joined[e.id].value for e in examples] == ["0", "1"]


def test_the_record_is_a_leaderboard_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = two(tmp_path)
    folder, _ = combine(folders)
    record = read_record(folder)
    assert folder.parts[-5:-2] == ("mini_topic", "mini_gpt+mini_static", "ensemble")
    assert folder.parts[-2] == record.cell
    assert (record.encoder, record.strategy, record.seed) == ("mini_gpt+mini_static", "ensemble", 0)
    assert record.variant == {"of": "frozen"}
    assert record.members == sorted("/".join(f.parts[-5:]) for f in folders)
    assert (record.partial, record.parameters, record.n_train) == (6, 20, 6)
    assert record.costs.train_seconds == 4
    assert record.costs.total_seconds > 10
    assert record.costs.examples_per_second == 3
    assert record.coverage == {"words": 9}
    assert record.metric_from_stats, "confidence intervals can be computed"
    assert any("mean of the members' class probabilities" in note for note in record.notes)
    assert main(["leaderboard", str(tmp_path / "results"), "--partial"]) == 0
    assert "mini_gpt+mini_static" in capsys.readouterr().out


def test_result_is_independent_of_the_order_of_members_and_reproducible(tmp_path: Path) -> None:
    folders = two(tmp_path)
    first, before = combine(folders)
    rows = read_predictions(first)
    second, after = combine(folders[::-1])
    assert (first, before.test, before.dev) == (second, after.test, after.dev)
    assert rows == read_predictions(second)
    assert [p.name for p in first.parent.parent.iterdir()] == [first.parent.name]


def test_equal_members_keep_their_predictions_and_ensembles_can_be_members(tmp_path: Path) -> None:
    same: Scores = lambda i: [0.3 * i, 1.0, 0.5, 0.2, 0.1, 0.0]  # noqa: E731
    folders = [member(tmp_path, same), member(tmp_path, same, encoder="mini_gpt")]
    folder, record = combine(folders)
    assert [r["prediction"] for r in read_predictions(folder)] == [
        r["prediction"] for r in read_predictions(folders[0])
    ]
    assert record.test == read_record(folders[0]).test
    again, nested = combine([folder, member(tmp_path, same, encoder="mini_bert")])
    assert nested.encoder == "mini_bert+mini_gpt+mini_static"
    assert read_predictions(again)[3]["prediction"] == read_predictions(folder)[3]["prediction"]


def test_members_are_grouped_by_seed_and_make_one_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = (two(tmp_path, f"seed={seed}") for seed in (0, 1))
    extra = two(tmp_path, "seed=2")[0]
    cells = [str(a[0].parent), str(a[1].parent.name)]
    groups = by_seed(cells, results=tmp_path / "results")
    assert [[f.name for f in g] for g in groups] == [["seed-0"] * 2, ["seed-1"] * 2, ["seed-2"] * 2]
    (tmp_path / "away").mkdir()
    extra.rename(tmp_path / "away" / "seed-2")
    assert main(["ensemble", *cells, "--results", str(tmp_path / "results")]) == 0
    assert "not every cell has them: seed-2" in capsys.readouterr().out
    made = sorted(
        (tmp_path / "results" / "mini_topic" / "mini_gpt+mini_static" / "ensemble").glob("*/seed-*")
    )
    assert [f.name for f in made] == ["seed-0", "seed-1"]
    assert len({f.parent for f in made}) == 1
    assert [read_record(f).seed for f in made] == [0, 1]
    assert read_record(made[1]).members == sorted("/".join(f.parts[-5:]) for f in b)


def test_seeds_of_one_cell_are_an_ensemble_with_a_separate_id(tmp_path: Path) -> None:
    folders = [member(tmp_path, lambda i: [1.0, 0, 0, 0, 0, 0], f"seed={seed}") for seed in (1, 2)]
    (group,) = by_seed([str(f) for f in folders], results=tmp_path)
    folder, record = combine(group)
    assert (record.seed, record.variant["seeds"]) == (1, "1+2")
    assert record.encoder == "mini_static+mini_static"
    other = member(tmp_path, lambda i: [1.0, 0, 0, 0, 0, 0], "seed=3")
    assert combine([folders[0], other])[0].parent != folder.parent


def refused(folders: list[Path], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        combine(folders)


def test_incompatible_members_are_rejected_with_the_difference(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    refused([one], r"1 cell\(s\): an ensemble needs at least two")
    refused([one, one], "given twice")
    gold = lambda i: [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]  # noqa: E731
    refused([one, member(tmp_path, gold, "limit=5", encoder="mini_bert")], "limit: 5 and 6")
    metric = member(tmp_path, gold, "task.metric=macro_f1", encoder="mini_bert")
    refused([one, metric], "metric: macro_f1 and accuracy")
    weights = member(tmp_path, gold, "task.class_weights=balanced", encoder="mini_bert")
    refused([one, weights], r"task\.class_weights: balanced and None")
    data = member(tmp_path, gold, encoder="mini_bert", data="0123456789ab")
    refused([one, data], "data: 0123456789ab and")
    failed = member(tmp_path, gold, encoder="mini_bert", status="failed")
    refused([one, failed], "the cell is failed; members must be complete")
    (other / "predictions.parquet").unlink()
    refused([one, other], r"predictions\.parquet is missing")
    (other / "record.json").unlink()
    refused([one, other], "no record yet")


@pytest.mark.parametrize("what", ["gold", "ids", "scores"])
def test_predictions_of_other_examples_are_refused(tmp_path: Path, what: str) -> None:
    one, other = two(tmp_path)
    predictions = {}
    for split in ("dev", "test"):
        rows = read_predictions(other, split=split)
        if what == "gold":
            rows[0]["gold"] = "another"
        examples = [
            Example(f"{r['id']}{'x' if what == 'ids' else ''}", (Text.from_string("t"),), r["gold"])
            for r in rows
        ]
        predicted = {
            e.id: Prediction(r["prediction"], r["scores"][: 3 if what == "scores" else None])
            for e, r in zip(examples, rows, strict=True)
        }
        predictions[split] = (examples, predicted)
    write_predictions(other, predictions)
    expected = {"gold": "the gold of dev example", "ids": "have the files changed", "scores": "has 3 scores"}
    refused([one, other], expected[what])


def test_cells_without_a_seed_in_common(tmp_path: Path) -> None:
    one = member(tmp_path, lambda i: [1.0, 0, 0, 0, 0, 0])
    other = member(tmp_path, lambda i: [1.0, 0, 0, 0, 0, 0], "seed=4", encoder="mini_gpt")
    with pytest.raises(HarnessError, match="no seed in common"):
        by_seed([str(one.parent), str(other.parent)], results=tmp_path)
    assert main(["ensemble", str(one)]) == 2
    assert main(["ensemble", str(one), "nothing", "--results", str(tmp_path / "results")]) == 2


def tags(scores: list[list[float]], **extra: Any) -> Prediction:
    value = [LABELS[int(np.argmax(row))] for row in scores]
    shape = {"shape": [len(scores), len(LABELS)], "labels": LABELS}
    return Prediction(value, [x for row in scores for x in row], {**shape, **extra})


def test_tagging_averages_word_by_word() -> None:
    one, two_ = tags([[2, 1.9, 0], [5, 0, 0]]), tags([[0, 1.9, 2], [0, 4, 0]])
    joined = average_labels([one, two_], "e", labels=LABELS, fallback="O")
    assert joined.value == ["B-X", "O"]
    mean = (softmax([5, 0, 0]) + softmax([0, 4, 0])) / 2
    np.testing.assert_allclose(softmax(joined.scores[3:]), mean)
    assert average_labels([one, one], "e", labels=LABELS, fallback="O").value == one.value
    assert average_labels([tags([])] * 2, "e", labels=LABELS, fallback="O").value == []


def test_a_word_without_tokens_in_one_member_is_decided_by_the_others() -> None:
    uniform, confident = (
        tags([[0, 0, 0], [0, 0, 0]], no_tokens=[0, 1]),
        tags([[0, 0.1, 0], [0, 0, 0]], no_tokens=[1]),
    )
    joined = average_labels([uniform, confident], "e", labels=LABELS, fallback="O")
    np.testing.assert_allclose(softmax(joined.scores[:3]), softmax([0, 0.1, 0]))
    assert joined.value == ["B-X", "O"]
    assert joined.extra["no_tokens"] == [1]


def test_tagging_members_of_other_words_or_labels_are_refused() -> None:
    one = tags([[1, 0, 0]])
    for other in (tags([[1, 0, 0]] * 2), tags([[1, 0, 0]], labels=["O", "B-Y", "I-Y"])):
        with pytest.raises(HarnessError, match="labels or words differ"):
            average_labels([one, other], "e", labels=LABELS, fallback="O")


CONTEXT = "anna was born in rome"


def spans(scores: Mapping[str, float], **extra: Any) -> Prediction:
    nbest = [
        {"text": t, "start": CONTEXT.index(t), "end": CONTEXT.index(t) + len(t), "score": s}
        for t, s in scores.items()
    ]
    return Prediction(nbest[0]["text"] if nbest else "", (), {"nbest": nbest, **extra})


def joined_spans(
    members: list[Prediction], *, unanswerable: bool = False, threshold: float = 0.0
) -> Prediction:
    return average_spans(members, "q", context=CONTEXT, unanswerable=unanswerable, null_threshold=threshold)


def test_spans_are_averaged_over_the_n_best_lists() -> None:
    members = [spans({"anna": 2.0, "rome": 1.9}), spans({"in rome": 2.0, "rome": 1.9})]
    joined = joined_spans(members)
    assert joined.value == "rome"
    share = softmax([2.0, 1.9])[1]
    assert joined.scores[0] == pytest.approx(np.log(share))
    assert (joined.extra["start"], joined.extra["end"]) == (17, 21)
    assert joined_spans([members[0]] * 2).value == "anna"
    assert joined_spans([spans({}), spans({})]).value == ""


def test_no_answer_wins_by_the_mean_margin_of_the_members() -> None:
    one = spans({"anna": 2.0}, null_score=2.5)
    alone = joined_spans([one, one], unanswerable=True)
    assert alone.value == ""
    assert alone.extra["null_margin"] == pytest.approx(0.5)
    assert joined_spans([one, one], unanswerable=True, threshold=0.6).value == "anna"
    sure = spans({"anna": 9.0}, null_score=0.0)
    assert joined_spans([one, sure], unanswerable=True).value == "anna"
    with pytest.raises(HarnessError, match="no null score"):
        joined_spans([one, spans({"anna": 1.0})], unanswerable=True)


def test_spans_of_another_context_are_refused() -> None:
    wrong = Prediction("x", (), {"nbest": [{"text": "paris", "start": 0, "end": 5, "score": 1.0}]})
    with pytest.raises(HarnessError, match="do not match the context"):
        joined_spans([wrong, wrong])


def test_log_mean_is_safe_for_large_and_infinite_scores() -> None:
    result = log_mean(np.array([[1000.0, 0.0], [-np.inf, 0.0]]))
    np.testing.assert_allclose(result, np.log([0.5, 0.5]))


@pytest.mark.parametrize("task", ["mini_topic", "mini_ner", "mini_qa"])
def test_real_cells_of_every_kind(tmp_path: Path, task: str) -> None:
    from harness.training.run import run_cell

    quick = ["limit=8", "trainer.epochs=1", "trainer.batch_size=8", "trainer.threads=1"]
    folders, per_member = [], []
    for encoder in ("mini_static", "mini_bert"):
        cell = make_cell(tmp_path, f"task={task}", f"encoder={encoder}", "strategy=frozen", *quick)
        run_cell(cell)
        folders.append(cell.folder)
        per_member.append(read_predictions(cell.folder))
    folder, record = combine(folders)
    rows = read_predictions(folder)
    assert [r["id"] for r in rows] == [r["id"] for r in per_member[0]]
    assert set(record.test) >= {record.metric}
    assert record.kind == read_record(folders[0]).kind
    assert json.loads((folder / "record.json").read_text())["members"] == record.members
    for one, other, row in zip(*per_member, rows, strict=True):
        if one["prediction"] == other["prediction"] and task == "mini_topic":
            top = [np.argmax(r["scores"]) for r in (one, other, row)]
            assert top[0] == top[1]


def test_every_kind_of_task_can_be_averaged() -> None:
    for name in (
        "harness_tasks.classification.task.TextClassification",
        "harness_tasks.tagging.task.Tagging",
    ):
        assert isinstance(TaskConfig("t", name).build(), Averages)
    assert isinstance(TaskConfig("t", "harness_tasks.span_qa.task.SpanQA").build(), Averages)
