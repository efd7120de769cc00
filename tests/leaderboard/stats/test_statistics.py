"""Confidence intervals, paired tests, costs, slices and comparisons across tasks, from stored predictions."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats

from harness.errors import HarnessError
from harness.leaderboard.command import main
from harness.leaderboard.render.columns import tie_text
from harness.leaderboard.stats.across_tasks import friedman, interquartile_mean, ranks
from harness.leaderboard.stats.bootstrap import Weights, holm, of_difference, of_row
from harness.leaderboard.stats.comparisons import NO_SPREAD, Sample, difference
from harness.leaderboard.table.rows import BoardRow
from harness.leaderboard.views.view import p_text
from harness.records.record import Costs, Record, write_record

AGGREGATE = "harness_tasks.classification.scoring.FROM_STATS"


def cell(
    root: Path,
    right: np.ndarray,
    *,
    encoder: str = "e",
    seed: int = 0,
    task: str = "t",
    tags: list[list[str]] | None = None,
    **given: Any,
) -> Path:
    """Write a complete cell whose predictions are correct where ``right`` (N,) is True."""
    n, score = len(right), float(np.mean(right))
    plain: dict[str, Any] = {
        "status": "complete", "task": task, "encoder": encoder, "strategy": "full", "cell": f"cell-{encoder}",
        "metric": "accuracy", "n_test": n, "test": {"accuracy": score}, "dev": {"accuracy": score},
        "metric_from_stats": AGGREGATE, "costs": Costs(train_seconds=2.0, host="h"), "parameters": 1000,
        "trained_parameters": 1000,
    }  # fmt: skip
    record = Record(**(plain | given), seed=seed)
    folder = root / task / encoder / record.strategy / record.cell / f"seed-{seed}"
    write_record(folder, record)
    counts = np.stack([np.ones(n), right], axis=1).astype(float)
    columns = {
        "split": ["test"] * n,
        "id": [f"q{i}" for i in range(n)],
        "tags": tags or [[]] * n,
        "counts": counts.tolist(),
    }
    schema = pa.schema([("split", pa.string()), ("id", pa.string()), ("tags", pa.list_(pa.string())),
                        ("counts", pa.list_(pa.float64()))])  # fmt: skip
    table = pa.table(columns, schema=schema).replace_schema_metadata({b"counts": b'["n", "right"]'})
    pq.write_table(table, folder / "predictions.parquet")
    return folder


def seeds(root: Path, level: float, *, n: int = 3, size: int = 200, draw: int = 0, **given: Any) -> None:
    random = np.random.default_rng(draw)
    for s in range(n):
        cell(root, random.random(size) < level, seed=s, **given)


def board(root: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert main([str(root), "--format", "json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def sample(right: np.ndarray, *, resamples: int = 10_000) -> Sample:
    """Of seeds (n, N)."""
    (weights,) = Weights(resamples=resamples).chunks(right.shape[1])
    return Sample(
        right.mean(axis=1), (weights @ right.T / right.shape[1]).T, right.shape[1], "d",
        tuple(range(len(right))), (0.0, 1.0),
    )  # fmt: skip


def test_the_interval_of_one_seed_is_reproducible_and_correct() -> None:
    right = np.repeat([[1.0, 0.0]], [80, 20], axis=1)
    low, high, kind = sample(right).interval()
    assert (low, high) == (pytest.approx(0.72, abs=0.011), pytest.approx(0.88, abs=0.011))
    assert kind == "examples only"
    assert sample(right).interval() == (low, high, kind)


def test_interval_exists_when_all_examples_are_correct() -> None:
    low, high, kind = sample(np.ones((1, 100))).interval()
    assert (low, high, kind) == (pytest.approx(0.963, abs=1e-3), 1.0, NO_SPREAD)


def test_one_example_has_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell(tmp_path, np.array([True]))
    (row,) = board(tmp_path, capsys)["rows"]
    assert (row["ci_low"], row["ci_high"], row["ci_kind"]) == (None, None, "fewer than two examples")


def test_two_seeds_with_opposite_classes_have_the_interval_of_one_random_guess_per_example() -> None:
    """Their mean is 0.5 on every resample, and their scores are equal: only the interaction varies."""
    gold = np.arange(100) % 2
    low, high, kind = sample(np.stack([gold == 0, gold == 1]).astype(float)).interval()
    # 0.5 +- 1.96 sqrt(0.25 / 100) on the arcsine scale
    expected = np.sin(np.pi / 4 + np.array([-0.098, 0.098])) ** 2
    assert (low, high) == (pytest.approx(expected[0], abs=2e-3), pytest.approx(expected[1], abs=2e-3))
    assert kind == "seeds and examples"


def test_variance_components_equal_two_way_analysis_of_variance() -> None:
    """For a mean, the bootstrap's variance components equal those of the analysis of variance."""
    random = np.random.default_rng(1)
    values = random.random((4, 60)) + random.random((4, 1)) + random.random(60)
    n, size = values.shape
    (weights,) = Weights(resamples=40_000).chunks(size)
    spread = of_row(values.mean(axis=1), (weights @ values.T / size).T)
    examples = values.mean(axis=0).var() / size
    apart = values - values.mean(axis=0)
    interaction = apart.var(axis=1).sum() / size / (n * (n - 1))
    between = values.mean(axis=1).var(ddof=1) / n
    assert spread.variance - spread.seeds == pytest.approx(examples, rel=0.03)
    assert spread.seeds == pytest.approx(between - interaction / 2, rel=0.01)


def test_interval_without_example_variance_equals_students_t() -> None:
    scores = np.array([0.5, 0.6, 0.7, 0.65])
    spread = of_row(scores, np.repeat(scores[:, None], 10, axis=1))
    expected = scipy.stats.t.interval(0.95, 3, loc=scores.mean(), scale=scipy.stats.sem(scores))
    assert spread.interval() == pytest.approx(expected)


def test_seed_variance_only_gives_welchs_test_or_the_paired_t_test() -> None:
    random = np.random.default_rng(0)
    a, b = random.random(5), random.random(5) + 0.3
    flat = [(x, np.repeat(x[:, None], 10, axis=1)) for x in (a, b)]
    unpaired = of_difference(flat[0], flat[1])
    assert unpaired.p_value() == pytest.approx(scipy.stats.ttest_ind(a, b, equal_var=False).pvalue)
    paired = of_difference(flat[0], flat[1], pair_seeds=True)
    assert paired.p_value() == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def ranks_by_counting(scores: np.ndarray) -> np.ndarray:
    """Formula: 1 + number of better scores + half the number of other equal scores."""
    above = (scores[None] > scores[:, None]).sum(axis=1)
    equal = (scores[None] == scores[:, None]).sum(axis=1)
    return np.asarray(above + (equal + 1) / 2)


def friedman_by_formula(ranked: np.ndarray) -> tuple[float, float]:
    """Compute 12 T / (k (k + 1)) sum_j (R_j - (k + 1) / 2)^2 / (1 - sum(t^3 - t) / (T k (k^2 - 1)))."""
    k, tasks = ranked.shape
    statistic = 12 * tasks / (k * (k + 1)) * float(((ranked.mean(axis=1) - (k + 1) / 2) ** 2).sum())
    ties = sum(float((n**3 - n).sum()) for c in ranked.T for n in [np.unique(c, return_counts=True)[1]])
    statistic /= 1 - ties / (tasks * k * (k**2 - 1))
    return statistic, float(scipy.stats.chi2.sf(statistic, k - 1))


def interquartile_mean_by_sorting(values: np.ndarray) -> float:
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def test_ranks_friedman_and_interquartile_mean_equal_their_formulas() -> None:
    """Random tables with scores of one decimal, so that most tables have ties."""
    random = np.random.default_rng(0)
    for _ in range(200):
        k, tasks = random.integers(3, 8), random.integers(5, 9)
        scores = np.round(random.random((k, tasks)), int(random.integers(1, 4)))
        ranked = ranks(scores)
        assert np.array_equal(ranked, ranks_by_counting(scores))
        assert friedman(ranked) == pytest.approx(friedman_by_formula(ranked), rel=1e-9)
        expected = interquartile_mean_by_sorting(scores.ravel())
        assert interquartile_mean(list(scores)) == pytest.approx(expected, rel=1e-12)


def test_equal_systems_have_no_significant_ranks() -> None:
    assert friedman(np.full((3, 5), 2.0)) == (0.0, 1.0)


def test_the_board_has_intervals_and_ties(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i, level in enumerate((0.80, 0.79, 0.4)):
        seeds(tmp_path, level, encoder=f"e{i}", draw=i)
    result = board(tmp_path, capsys)["rows"]
    assert [row["tied"] for row in result] == [True, True, False]
    for row in result:
        assert row["ci_low"] < row["mean"] < row["ci_high"]
        assert row["ci_kind"] == "seeds and examples"
    assert board(tmp_path, capsys)["rows"] == result
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert f"{result[0]['ci_low']:.4f} to {result[0]['ci_high']:.4f}" in out
    assert "not significantly different from the best row (paired test, p >= 0.05, Holm)" in out


def test_records_without_counts_have_a_mean_and_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell(tmp_path, np.array([True, False]), metric_from_stats="")
    cell(tmp_path, np.array([True, True]), encoder="f", metric_from_stats="os.system")
    result = board(tmp_path, capsys)["rows"]
    assert [row["ci_low"] for row in result] == [None, None]
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "1 of 2 rows without a confidence interval: its record has no example statistics" in out
    assert "'os.system' is not the metric of an installed task; add --config-dir DIR" in out


def test_predictions_that_contradict_their_record_give_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell(tmp_path, np.array([True, False]), test={"accuracy": 0.9})
    (row,) = board(tmp_path, capsys)["rows"]
    assert row["ci_kind"] == "its predictions give 0.5, its record 0.9"


def test_question_marks_when_the_best_row_cannot_be_tested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table without marks would look as if no test had been requested."""
    cell(tmp_path, np.array([True, False] * 100), test={"accuracy": 0.9})
    seeds(tmp_path, 0.6, encoder="f", draw=1)
    main([str(tmp_path), "--format", "md"])
    out = capsys.readouterr().out
    assert "?: no test against the best row was possible" in out
    assert "| ? |" in out


def test_compare_two_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds(tmp_path, 0.9, encoder="good", draw=1)
    seeds(tmp_path, 0.5, encoder="bad", draw=2)
    seeds(tmp_path, 0.5, encoder="other", draw=3, size=100, task="t2")
    result = board(tmp_path, capsys, "--compare", "good/full", "cell-bad")["comparisons"]
    (one,) = result
    assert one["effect"] == pytest.approx(one["mean_a"] - one["mean_b"], abs=1e-5)
    assert one["ci_low"] < one["effect"] < one["ci_high"]
    assert (one["examples"], one["seeds"]) == (200, "unpaired")
    assert one["p"] < 0.001
    paired = board(tmp_path, capsys, "--compare", "good/full", "bad/full", "--pair-seeds")["comparisons"]
    assert paired[0]["seeds"] == "paired"
    with pytest.raises(HarnessError, match="did you mean good/full"):
        main([str(tmp_path), "--compare", "god/full", "bad/full"])
    with pytest.raises(HarnessError, match="at least two"):
        main([str(tmp_path), "--compare", "good/full"])


def test_error_reduction_against_a_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell(tmp_path, np.arange(100) < 90, encoder="new")
    cell(tmp_path, np.arange(100) < 80, encoder="old")
    new, old = board(tmp_path, capsys, "--baseline", "old/full")["rows"]
    assert new["error_reduction"] == pytest.approx(0.5)
    assert old["error_reduction"] is None
    assert 0 < new["p_baseline"] < 0.05


def test_degenerate_seeds_are_counted_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell(tmp_path, np.arange(10) < 9)
    cell(tmp_path, np.arange(10) < 2, seed=1, degenerate="predicts nothing but a")
    (row,) = board(tmp_path, capsys)["rows"]
    assert (row["degenerate"], row["n"], row["mean"]) == (1, 2, pytest.approx(0.55))
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "1 of 2" in out
    assert "1 seed degenerate (one answer for every example); included in the means" in out


def test_slices_are_scored_separately(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tags = [["short"] if i < 50 else ["long", "odd"] for i in range(100)]
    for s in range(3):
        cell(tmp_path, np.arange(100) < 60 + s, seed=s, tags=tags)
    result = {row["slice"]: row for row in board(tmp_path, capsys, "--by-slice")["slices"]}
    assert set(result) == {"short", "long", "odd"}
    assert result["short"]["mean"] == 1.0
    assert result["long"]["mean"] == pytest.approx((10 + 11 + 12) / 150, abs=1e-6)
    assert result["long"]["ci_low"] < 0.22 < result["long"]["ci_high"]


def test_curves_over_the_training_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for size, level in ((100, 0.5), (1000, 0.8)):
        variant = {"task.train_size": size, "optimizer.lr": 0.1}
        seeds(tmp_path, level, cell=f"c{size}", variant=variant, n_train=size)
    result = board(tmp_path, capsys, "--curve")["curves"]
    assert [(p["line"], p["n_train"]) for p in result] == [
        ("e/full optimizer.lr=0.1", 100), ("e/full optimizer.lr=0.1", 1000),
    ]  # fmt: skip
    grouped = board(tmp_path, capsys, "--curve", "--group-by", "encoder")["curves"]
    assert [(p["line"], p["n_train"], p["mean"]) for p in grouped] == [
        ("encoder=e", p["n_train"], p["mean"]) for p in result
    ]
    with pytest.raises(HarnessError, match=r"task\.train_size"):
        main([str(tmp_path), "--curve", "--group-by", "n_train", "cell"])


def test_a_curve_needs_no_size_in_the_variant_and_has_one_point_per_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The size can come from a configuration file; the explicit size of the full split equals ``all``."""
    seeds(tmp_path, 0.5, cell="c100", n_train=100)
    seeds(tmp_path, 0.8, cell="c1000", n_train=1000)
    seeds(tmp_path, 0.8, cell="cmost", n_train=1000, variant={"task.train_size": 1000})
    result = board(tmp_path, capsys, "--curve")["curves"]
    assert [(p["line"], p["n_train"]) for p in result] == [("e/full", 100), ("e/full", 1000)]


def test_costs_fronts_and_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i, (level, spent, device) in enumerate(
        ((0.9, 100.0, "cpu"), (0.88, 10.0, "cpu"), (0.5, 50.0, "cpu"), (0.4, 1.0, "GPU X"))
    ):
        costs = Costs(train_seconds=spent, host="h", device=device)
        seeds(tmp_path, level, encoder=f"e{i}", draw=i, costs=costs, trained_parameters=2**18 * (i + 1))
    result = {row["row"]: row for row in board(tmp_path, capsys, "--cost")["cost"]}
    assert ["train_seconds" in result[f"e{i}/full"]["best_for"] for i in range(4)] == [
        True,
        True,
        False,
        True,
    ]
    assert [result[f"e{i}/full"]["storage_mb"] for i in range(4)] == [1.0, 2.0, 3.0, 4.0]
    assert result["e3/full"]["device"] == "GPU X"
    assert "adapt_seconds" not in result["e0/full"]
    adapted = Costs(train_seconds=1.0, adapt_seconds=3.0, host="h", device="cpu")
    seeds(tmp_path / "adapted", 0.5, encoder="e", costs=adapted)
    assert board(tmp_path / "adapted", capsys, "--cost")["cost"][0]["adapt_seconds"] == 3.0
    taken = board(tmp_path, capsys, "--budget", "train_seconds=60")["recommendations"]
    assert {row["device"]: row["best"] for row in taken} == {"cpu of h": "e1/full", "GPU X": "e3/full"}
    with pytest.raises(HarnessError, match="did you mean train_seconds"):
        main([str(tmp_path), "--budget", "train_second=6"])
    with pytest.raises(HarnessError, match="expected a number"):
        main([str(tmp_path), "--budget", "train_seconds=x"])


def test_over_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for t in range(5):
        for i, level in enumerate((0.9, 0.7, 0.5)):
            seeds(tmp_path, level, encoder=f"e{i}", task=f"t{t}", draw=10 * t + i)
    seeds(tmp_path, 0.5, encoder="lone", task="t0")
    assert main([str(tmp_path), "--across", "--format", "json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)["across"]
    assert [(row["system"], row["average_rank"]) for row in result] == [
        ("e0/full", 1.0), ("e1/full", 2.0), ("e2/full", 3.0),
    ]  # fmt: skip
    assert result[0]["ci_low"] < 0.9 < result[0]["ci_high"]
    assert "chi2(2) = 10.00" in printed.err
    assert "lone/full" in printed.err
    with pytest.raises(HarnessError, match="only one task"):
        main([str(tmp_path), "--across", "--task", "t0"])


def test_every_format_shows_a_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds(tmp_path, 0.9, encoder="a_b", draw=1)
    seeds(tmp_path, 0.5, encoder="c", draw=2)
    options = ["--compare", "a_b/full", "c/full"]
    for form, expected in (("terminal", "a_b/full"), ("md", r"a\_b/full"), ("latex", r"a\_b/full")):
        main([str(tmp_path), "--format", form, *options])
        assert expected in capsys.readouterr().out
    main([str(tmp_path), "--format", "csv", *options])
    (line,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert line["a"] == "a_b/full"
    main([str(tmp_path), "--format", "latex"])
    out = capsys.readouterr().out
    assert r"\textbf{a\_b}" in out
    assert r"$\pm$" in out
    with pytest.raises(HarnessError, match="one kind of table"):
        main([str(tmp_path), "--format", "csv", "--cost", *options])


def test_fifty_rows_of_two_thousand_predictions_are_quick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(50):
        seeds(tmp_path, 0.5 + i / 200, encoder=f"e{i}", draw=i, size=2000)
    begin = time.process_time()
    main([str(tmp_path)])
    assert time.process_time() - begin < 5
    assert "without a confidence interval" not in capsys.readouterr().out


def test_small_p_values_and_untested_rows_are_marked() -> None:
    assert [p_text(p) for p in (0.0312, 1e-4, 3e-90)] == ["0.031", "0.0001", "< 0.0001"]
    row = BoardRow("t", "m", True, {}, [])
    assert tie_text(row) == ""
    row.untested = "pools several cells"
    assert tie_text(row) == "?"
    row.tied = True
    assert tie_text(row) == "tied"


def test_a_slice_without_an_entity_has_no_f1() -> None:
    from harness_tasks.tagging.scoring import FROM_STATS, example_stats

    plain = example_stats([["O", "O"]], [["O", "O"]])
    some = example_stats([["B-PER", "O"]], [["O", "O"]])
    for metric in ("span_f1", "strict_span_f1", "span_recall", "f1/PER"):
        assert FROM_STATS.undefined(plain.values.sum(0), plain.names, metric)
        assert not FROM_STATS.undefined(some.values.sum(0), some.names, metric)
    assert not FROM_STATS.undefined(plain.values.sum(0), plain.names, "token_accuracy")


def test_two_examples_are_not_conclusive(tmp_path: Path) -> None:
    """If all N examples agree, the p-value must not be below that of the sign test."""
    for seeds in (1, 3):
        right, wrong = sample(np.ones((seeds, 2))), sample(np.zeros((seeds, 2)))
        result = difference(right, wrong)
        assert not isinstance(result, str)
        spread = result[0]
        assert spread.p_value() == pytest.approx(scipy.stats.binomtest(2, 2).pvalue)
        low, high = right.difference_limits(spread)
        assert -1 <= low < 0.5
        assert high == 1.0
    many = difference(sample(np.ones((3, 40))), sample(np.zeros((3, 40))))
    assert not isinstance(many, str)
    assert 0 < many[0].p_value() < 1e-9


def test_limits_of_a_difference_are_within_the_possible_differences() -> None:
    random = np.random.default_rng(3)
    high, low = sample(np.ones((1, 20))), sample((random.random((2, 20)) < [[0.1], [0.9]]).astype(float))
    result = difference(high, low)
    assert not isinstance(result, str)
    spread, _, seeds = result
    assert seeds == "seeds of one row only"
    assert spread.interval()[1] > 1
    assert high.difference_limits(spread)[1] == 1.0


DAMAGE = {
    "a missing column": (lambda t: t.drop_columns(["id"]), "no column id"),
    "null ids": (lambda t: t.set_column(1, "id", pa.nulls(len(t), pa.string())), "column id is not text"),
    "names that are no list": (lambda t: t.replace_schema_metadata({b"counts": b"3"}), "not a list of texts"),
    "names that are no JSON": (lambda t: t.replace_schema_metadata({b"counts": b"["}), "cannot be read"),
    "deep JSON": (lambda t: t.replace_schema_metadata({b"counts": b"[" * 100_000}), "nested too deeply"),
    "too many names": (lambda t: t.replace_schema_metadata({b"counts": b'["a","b","c"]'}), "not 3 counts"),
    "equal names": (lambda t: t.replace_schema_metadata({b"counts": b'["n","n"]'}), "the same name"),
    "null counts": (lambda t: t.set_column(3, "counts", pa.nulls(len(t), t["counts"].type)), "not 2 counts"),
    "counts that are text": (
        lambda t: t.set_column(3, "counts", pa.array([["x", "y"]] * len(t))), "cannot be read"),
    "counts that are no lists": (
        lambda t: t.set_column(3, "counts", pa.array([1] * len(t))), "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_predictions_cost_only_the_interval_of_their_row(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, why = DAMAGE[damage]
    good = np.array([True, False] * 20)
    cell(tmp_path, good)
    path = cell(tmp_path, good, encoder="f") / "predictions.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    rows = {row["encoder"]: row for row in board(tmp_path, capsys, "--by-slice")["rows"]}
    assert rows["e"]["ci_low"] is not None
    assert (rows["f"]["ci_low"], rows["f"]["mean"]) == (None, 0.5)
    assert str(path) in rows["f"]["ci_kind"]
    assert why in rows["f"]["ci_kind"]
    assert main([str(tmp_path), "--format", "html"]) == 0
