"""Views compare only comparable rows; an empty view shows the reason and the fix."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.leaderboard.command import main
from harness.leaderboard.render.terminal import views_on_screen
from harness.leaderboard.views.view import View
from harness.records.record import Costs, Record, write_record
from tests.helpers.boards import labels

Capture = pytest.CaptureFixture[str]


def shown(root: Path, capsys: Capture, *options: str) -> Any:
    assert main([str(root), "--format", "json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def printed(root: Path, capsys: Capture, *options: str) -> str:
    assert main([str(root), *options]) == 0
    return capsys.readouterr().out


def sizes(root: Path, *, task: str = "t", largest: int = 500) -> Path:
    """Write cells of two encoders, each on 30 and on all examples; training on fewer examples costs less."""
    for k, (encoder, level) in enumerate((("a", 0.9), ("b", 0.6))):
        for n in (30, largest):
            costs = Costs(train_seconds=n / 10 + k, host="h")
            variant = {} if n == largest else {"task.train_size": n}
            labels(
                root, level if n == largest else level / 2, task=task, encoder=encoder, cell=f"{encoder}{n}",
                draw=k, n_train=n, variant=variant, costs=costs,
            )  # fmt: skip
    return root


# --- json


def test_json_is_one_object_with_and_without_views(tmp_path: Path, capsys: Capture) -> None:
    labels(tmp_path, 0.9, encoder="a")
    labels(tmp_path, 0.4, encoder="b", partial=8)
    alone, with_views = shown(tmp_path, capsys), shown(tmp_path, capsys, "--cost", "--by-slice")
    assert set(alone) == {"rows", "notes"}
    assert set(with_views) == {"rows", "notes", "cost", "slices"}
    assert with_views["rows"] == alone["rows"]
    assert alone["notes"][-1] == "left out: 1 partial record (run with a limit); --partial shows them"
    assert {*alone["notes"]} < {*with_views["notes"]}
    assert any("encode_seconds is the full cost" in note for note in with_views["notes"])


@pytest.mark.parametrize(("option", "name"), [("--cost", "cost"), ("--by-slice", "slices")])
def test_requested_views_are_included_without_rows(
    tmp_path: Path, capsys: Capture, option: str, name: str
) -> None:
    lost = Record("failed", "t", "e", "full", "c", 0, reason="no")
    write_record(tmp_path / "t" / "e" / "full" / "c" / "seed-0", lost)
    assert shown(tmp_path, capsys, option)[name] == []
    assert "no row has a score" in printed(tmp_path, capsys, option)


# --- over tasks


def test_over_tasks_a_task_of_two_data_versions_counts_once(tmp_path: Path, capsys: Capture) -> None:
    for encoder in "abc":
        for task in ("one", "two"):
            labels(tmp_path, 0.8, task=task, encoder=encoder, cell=f"{task}-{encoder}", data="new")
    labels(tmp_path, 0.5, task="two", encoder="a", cell="old", data="old")
    result = shown(tmp_path, capsys, "--across")
    assert {(row["system"], row["tasks"]) for row in result["across"]} == {(f"{e}/full", 2) for e in "abc"}
    (note,) = [n for n in result["notes"] if "two has 2 tables" in n]
    assert "the one with most rows is used, two (accuracy, data new): 3 rows" in note
    assert "left out: two (accuracy, data old): 1 row." in note
    with pytest.raises(HarnessError, match=r"only one task.*two has 2 tables"):
        main([str(tmp_path), "--across", "--task", "two"])


def test_over_tasks_without_a_common_system_names_the_options(tmp_path: Path, capsys: Capture) -> None:
    for task, rate in (("one", 1), ("two", 2)):
        for k, level in ((rate, 0.8), (3 * rate, 0.4)):
            variant = {"optimizer.lr": k}
            labels(tmp_path / "v", level, task=task, cell=f"{task}{k}", variant=variant, draw=k)
        labels(tmp_path / "e", 0.5, task=task, encoder=task)
    out = printed(tmp_path / "v", capsys, "--across")
    assert "nothing is ranked: no system has a score on all 2 tasks (systems: one 2, two 2)" in out
    assert "--select dev" in out
    (chosen,) = shown(tmp_path / "v", capsys, "--across", "--select", "dev")["across"]
    assert (chosen["system"], chosen["tasks"]) == ("e/full", 2)
    assert "--task NAME" in printed(tmp_path / "e", capsys, "--across")


@pytest.mark.parametrize("options", [[], ["--group-by", "encoder", "strategy"], ["--select", "dev"]])
def test_over_tasks_uses_only_the_largest_training_set(
    tmp_path: Path, capsys: Capture, options: list[str]
) -> None:
    sizes(tmp_path, task="one")
    sizes(tmp_path, task="two", largest=700)
    result = shown(tmp_path, capsys, "--across", *options)
    assert [(row["system"], row["average_rank"]) for row in result["across"]] == [
        ("a/full", 1),
        ("b/full", 2),
    ]
    assert any("one: only rows of the largest training set (500 examples), not those of 30" in n
               for n in result["notes"])  # fmt: skip
    small = shown(tmp_path, capsys, "--across", "--train-size", "30", *options)
    assert max(row["mean"] for row in small["across"]) < min(row["mean"] for row in result["across"])


# --- costs and budgets


def test_pareto_fronts_are_within_one_training_set_size(tmp_path: Path, capsys: Capture) -> None:
    result = shown(sizes(tmp_path), capsys, "--cost")
    rows = {(r["row"].split("/")[0], r["n_train"]): "train_seconds" in r["best_for"] for r in result["cost"]}
    assert rows == {("a", 30): True, ("b", 30): False, ("a", 500): True, ("b", 500): False}
    assert any("no other row with the same training-set size is as good" in note for note in result["notes"])
    alone = shown(tmp_path, capsys, "--cost", "--train-size", "all")["cost"]
    assert [row["row"] for row in alone] == ["a/full", "b/full"]
    assert "n_train" not in alone[0]


def test_budget_recommends_within_one_training_set_size(tmp_path: Path, capsys: Capture) -> None:
    sizes(tmp_path)
    (all_,) = shown(tmp_path, capsys, "--budget", "train_seconds=60")["recommendations"]
    assert (all_["best"], all_["n_train"], all_["fitting_rows"]) == ("a/full", 500, 2)
    assert all("train_size" not in name for name in all_["tied_with"])
    short = shown(tmp_path, capsys, "--budget", "train_seconds=10")
    assert short["recommendations"] == []
    assert any("no row is within the budget" in note for note in short["notes"])
    assert any("left out: 2 rows of 30 (2 within the budget); --train-size N" in n for n in short["notes"])
    (small,) = shown(tmp_path, capsys, "--budget", "train_seconds=10", "--train-size", "30")[
        "recommendations"
    ]
    assert (small["best"], small["n_train"]) == ("a/full task.train_size=30", 30)


def test_training_set_sizes_without_rows(tmp_path: Path, capsys: Capture) -> None:
    sizes(tmp_path, task="one")
    labels(tmp_path, 0.5, task="two", n_train=40)
    assert {row["task"] for row in shown(tmp_path, capsys, "--train-size", "40")["rows"]} == {"two"}
    assert "one: no cell was trained on 40 examples" in printed(tmp_path, capsys, "--train-size", "40")
    with pytest.raises(
        HarnessError,
        match="--train-size 7: no cell has this many training examples; available sizes: 30, 40, 500",
    ):
        main([str(tmp_path), "--train-size", "7"])
    with pytest.raises(
        HarnessError, match="--train-size most: expected a number of training examples, or all"
    ):
        main([str(tmp_path), "--train-size", "most"])


def test_recommendation_is_below_its_table(tmp_path: Path, capsys: Capture) -> None:
    for k in range(12):
        labels(tmp_path, 0.7, encoder=f"encoder_of_some_length_{k}", draw=k)
    options = ["--budget", "parameters=1e9"]
    (row,) = shown(tmp_path, capsys, *options)["recommendations"]
    assert row["tied"] == len(row["tied_with"]) > 8
    out = printed(tmp_path, capsys, *options)
    head, _, table, sentence = out.splitlines()[1:5]
    assert "summary" not in head
    assert "tied with" not in head
    assert max(map(len, (head, table))) < 200
    assert sentence.startswith(f"t, any: {row['best']}: ")
    assert sentence.endswith(f"and {row['tied'] - 8} more")
    assert f"- {sentence}".replace("_", r"\_") in printed(tmp_path, capsys, "--format", "md", *options)


@pytest.mark.parametrize("width", [80, 120])
def test_view_fits_the_terminal_without_truncated_numbers(width: int) -> None:
    name = "an_encoder_of_some_length/full optimizer.lr=0.001 trainer.epochs=10"
    row = {"row": name, "mean": 0.12345678, "peak_memory_mb": 1234567, "best_for": ["parameters"] * 9}
    out = views_on_screen([View("cost", "t: cost", [row], ["a note " * 30])], width=width)
    assert max(map(len, out.splitlines())) <= width
    assert "0.1235" in out
    assert "1234567" in out
    assert "peak" in out.splitlines()[1]
    wide = {f"number_{i}": 1234567 for i in range(20)}
    assert out.count("1234567") == 1
    assert views_on_screen([View("cost", "t", [wide])], width=width).count("1234567") == 20


def test_a_terminal_shows_views_in_its_width(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels(tmp_path, 0.7, encoder="an_encoder_of_some_length_and_more_of_it")
    labels(tmp_path, 0.5, encoder="b")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("NO_COLOR", "1")
    out = printed(tmp_path, capsys, "--budget", "train_seconds=60")
    assert max(map(len, out.splitlines())) <= 110
    assert "an_encoder_of_some_length_and_more_of_it/full: 0." in out


# --- names of rows


@pytest.mark.parametrize("option", ["--baseline", "--compare"])
def test_error_for_an_ambiguous_row_name_lists_the_names(tmp_path: Path, option: str) -> None:
    for epochs in (1, 2):
        variant = {"trainer.epochs": epochs, "optimizer.lr": 0.1}
        labels(tmp_path, 0.6, encoder="b", cell=f"c{epochs}", variant=variant, draw=epochs)
    labels(tmp_path, 0.5, encoder="a")
    names = ["b/full"] if option == "--baseline" else ["b/full", "a/full"]
    with pytest.raises(HarnessError) as caught:
        main([str(tmp_path), option, *names])
    message = str(caught.value)
    assert message.startswith(
        f"{option} b/full: ambiguous, 2 rows of t match; use a full name with its quotes, such as 'b/full "
    )
    assert "'b/full optimizer.lr=0.1 trainer.epochs=2'" in message
    full_names = ["b/full optimizer.lr=0.1 trainer.epochs=1", *names[1:]]
    assert main([str(tmp_path), option, *full_names]) == 0


def test_error_for_an_ambiguous_id_prefix_requests_a_longer_one(tmp_path: Path) -> None:
    for k in range(9):
        labels(tmp_path, 0.6, encoder=f"e{k}", cell=f"abcdef{k}00")
    with pytest.raises(HarnessError, match=r"9 rows of t match; .*'?e0/full.* and 3 more"):
        main([str(tmp_path), "--baseline", "abcd"])


def test_rows_grouped_by_further_fields_have_distinct_names(tmp_path: Path, capsys: Capture) -> None:
    for lr in (0.1, 0.2):
        labels(tmp_path, 0.6, cell=f"c{lr}", variant={"optimizer.lr": lr})
    options = ["--group-by", "encoder", "strategy", "optimizer.lr", "--cost"]
    assert {row["row"] for row in shown(tmp_path, capsys, *options)["cost"]} == {
        "e/full optimizer.lr=0.1", "e/full optimizer.lr=0.2",
    }  # fmt: skip
