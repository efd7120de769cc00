"""The leaderboard: computed from records only, with a reason for every row without a score."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import HarnessError
from harness.leaderboard.command import main
from harness.leaderboard.render.terminal import terminal
from harness.leaderboard.table.board import make_board
from harness.leaderboard.table.configs import UNSET, Configs
from harness.records.record import Costs, Record, write_record

Rows = Callable[..., list[dict[str, Any]]]
HOSTILE = 'a|b,"c"\n*한국어*\x1b[31m <x> `d`'


def record(score: float | None = 0.5, *, dev: float | None = None, **given: Any) -> Record:
    plain: dict[str, Any] = {
        "status": "complete", "task": "t", "encoder": "e", "strategy": "full", "cell": "c0", "seed": 0,
        "metric": "accuracy", "n_test": 10, "costs": Costs(train_seconds=2.0, host="h"),
        "parameters": 1000, "trained_parameters": 10,
    }  # fmt: skip
    if given.get("status", "complete") == "complete":
        plain |= {"test": {"accuracy": score}, "dev": {"accuracy": score if dev is None else dev}}
    return Record(**(plain | given))


def save(root: Path, *records: Record) -> Path:
    for i, r in enumerate(records):
        write_record(root / "t" / "e" / "s" / f"{i:03d}" / f"seed-{r.seed}", r)
    return root


def write_plain(folder: Path, r: Record) -> None:
    """Write a record without fsync, for tests with many records."""
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(asdict(r)))


@pytest.fixture
def rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Rows:
    def run(*records: Record, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        save(tmp_path, *records)
        assert main([str(tmp_path), "--format", "json", *options]) == 0
        board_rows = json.loads(capsys.readouterr().out)["rows"]
        assert isinstance(board_rows, list)
        return board_rows

    return run


def test_mean_and_sample_deviation_over_seeds(rows: Rows) -> None:
    (row,) = rows(*(record(s, seed=i, dev=s + 0.1) for i, s in enumerate((0.5, 0.6, 0.7))))
    assert row["mean"] == pytest.approx(0.6)
    assert row["std"] == pytest.approx(0.1)
    assert (row["min"], row["max"], row["n"], row["complete"]) == (0.5, 0.7, 3, 3)
    assert row["dev"] == pytest.approx(0.7)
    assert (row["metric"], row["train_seconds"], row["parameters"], row["trained_parameters"]) == (
        "accuracy", 2.0, 1000, 10,
    )  # fmt: skip


def test_one_seed_has_no_standard_deviation(rows: Rows) -> None:
    assert rows(record(0.5))[0]["std"] is None


def test_each_cell_is_a_row(rows: Rows) -> None:
    board_rows = rows(
        record(0.5, cell="a"), record(0.9, cell="b", variant={"optimizer.lr": 1e-3, "body": "bilstm"})
    )
    assert [r["variant"] for r in board_rows] == ["body=bilstm optimizer.lr=0.001", ""]


def test_cells_with_equal_labels_are_labelled_with_their_id(rows: Rows) -> None:
    assert {r["variant"] for r in rows(record(cell="aa"), record(cell="bb"))} == {"cell=aa", "cell=bb"}


def test_nan_is_last_and_marked_diverged(rows: Rows) -> None:
    board_rows = rows(
        record(None, encoder="x", cell="x"),
        record(0.5, encoder="y", cell="y"),
        record(0.9, encoder="z", cell="z"),
    )
    assert [r["encoder"] for r in board_rows] == ["z", "y", "x"]
    assert (board_rows[-1]["state"], board_rows[-1]["mean"], board_rows[-1]["diverged"]) == (
        "diverged",
        None,
        1,
    )


def test_one_diverged_seed_makes_the_row_diverged(rows: Rows) -> None:
    (row,) = rows(record(0.9, seed=0), record(None, seed=1))
    assert (row["mean"], row["state"], row["complete"]) == (None, "diverged", 2)


def test_an_infinite_score_of_a_minimised_metric_is_not_best(rows: Rows) -> None:
    board_rows = rows(
        record(float("-inf"), encoder="x", cell="x", maximize=False),
        record(3.0, encoder="y", cell="y", maximize=False),
        record(2.0, encoder="z", cell="z", maximize=False),
    )
    assert [r["encoder"] for r in board_rows] == ["z", "y", "x"]


def test_failed_cells_are_shown_with_their_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(
        tmp_path,
        record(0.4, encoder="A", cell="a"),
        record(encoder="B", cell="b", status="failed", reason="Traceback\nValueError: boom-B"),
        record(encoder="P", cell="p", status="failed", reason="KeyError: 'x'\n(features.py:81)"),
        record(0.6, encoder="C", cell="c"),
        record(encoder="D", cell="d", status="timeout", reason="stopped after 5 s"),
        record(encoder="S", cell="s", status="skipped", reason="equals another cell"),
    )
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "0.4000" in out
    assert "0.6000" in out
    assert "t/B/full/b/seed-0: ValueError: boom-B" in out
    assert "t/P/full/p/seed-0: KeyError: 'x'" in out
    assert "t/D/full/d/seed-0: timeout: stopped after 5 s" in out
    assert "t/S/full/s/seed-0: equals another cell" in out
    assert out.index("0.6000") < out.index("0.4000") < out.index("Failed (3)") < out.index("Skipped")


def test_skipped_cells_have_rows_only_on_request_but_always_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = [
        record(encoder="S", cell="s", seed=n, status="skipped", reason="equals another") for n in (0, 1)
    ]
    none_else = record(task="u", status="skipped", reason="makes no sense", cell="u")
    save(tmp_path, record(0.4), *skipped, none_else)
    for form in ("terminal", "md", "csv", "json", "latex", "html"):
        seen = {}
        for choice in ("show", "hide"):
            place = tmp_path / f"board.{choice}"
            main([str(tmp_path), "--format", form, "--output", str(place), "--skipped", choice])
            seen[choice] = place.read_text()
            output = seen[choice] + capsys.readouterr().err
            assert "equals another" in output
            assert "makes no sense" in output
        row = r"(?<!/)\bS\b(?!/)"  # not in the name of a cell
        assert len(re.findall(row, seen["show"])) > len(re.findall(row, seen["hide"])), form
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "Skipped; --skipped show adds rows for them\n  t/S/full/s/seed-0 and 1 more: equals another" in out
    assert "2 skipped" not in out
    assert not out.startswith("u |")


def test_select_dev_does_not_count_skipped_cells_as_tried() -> None:
    skipped = record(cell="c1", status="skipped", reason="makes no sense", variant={"encoder.layers": "mix"})
    ran = [record(0.5, cell="c0"), record(0.4, cell="c2", variant={"optimizer.lr": 1})]
    assert make_board([*ran, skipped], select=True).tables[0].rows[0].tried == 2


def test_markdown_headings_do_not_escape_bars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, record(encoder="a|b"))
    for options in ([], ["--cost"]):
        main([str(tmp_path), "--format", "md", *options])
        out = capsys.readouterr().out
        assert "## t | test accuracy, higher is better" in out
        assert re.search(r"^\|.* a\\\|b", out, re.MULTILINE)


def test_timeouts_count_as_failed(rows: Rows) -> None:
    (row,) = rows(record(0.4), record(seed=1, status="timeout"), record(seed=2, status="failed"))
    assert (row["complete"], row["failed"], row["skipped"], row["mean"]) == (1, 2, 0, 0.4)


def test_without_a_complete_cell_there_is_no_mean(rows: Rows) -> None:
    (row,) = rows(record(status="failed", metric="", reason="out of memory"))
    assert (row["mean"], row["state"], row["reason"]) == (None, "failed", "out of memory")


def test_select_dev_does_not_use_test_scores(rows: Rows) -> None:
    board_rows = rows(
        record(0.9, dev=0.5, cell="a"),
        record(0.1, dev=0.6, cell="b", variant={"optimizer.lr": 1.0}),
        record(0.3, dev=0.2, cell="d", encoder="f"),
        options=("--select", "dev"),
    )
    assert {(r["encoder"], r["mean"], r["tried"]) for r in board_rows} == {("e", 0.1, 2), ("f", 0.3, 1)}


def test_select_dev_follows_the_direction_of_the_metric(rows: Rows) -> None:
    low, high = (record(s, cell=str(s), variant={"k": s}, maximize=False) for s in (10.0, 20.0))
    assert [r["mean"] for r in rows(low, high, options=("--select", "dev"))] == [10.0]


def test_select_dev_without_dev_scores_keeps_all_rows_with_a_note() -> None:
    records = [record(cell="x"), record(cell="y", variant={"k": 1})]
    for r in records:
        r.dev = {}
    board = make_board(records, select=True)
    assert [row.notes for row in board.tables[0].rows] == [["no dev score to select by"]] * 2


def test_partial_records_are_shown_only_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, record(0.5), record(0.75, encoder="p", cell="p", partial=16))
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "0.7500" not in out
    assert "left out: 1 partial record (run with a limit)" in out
    main([str(tmp_path), "--partial"])
    out = capsys.readouterr().out
    assert out.index("0.5000") < out.index("PARTIAL: t") < out.index("0.7500")


def test_skipped_cells_of_runs_with_a_limit_are_not_partial_records() -> None:
    ran = [record(0.75, encoder="p", cell="p", partial=16, seed=s) for s in (0, 1)]
    ran.append(record(status="failed", encoder="q", cell="q", partial=16, reason="no"))
    skipped = record(status="skipped", encoder="s", cell="s", partial=16, reason="makes no sense")
    notes = [make_board([record(0.5), *some]).notes for some in ([*ran, skipped], ran, [skipped])]
    assert [note.removesuffix("; --partial shows them") for (note,) in notes] == [
        "left out: 3 partial records (run with a limit) and 1 skipped cell of runs with a limit",
        "left out: 3 partial records (run with a limit)",
        "left out: 1 skipped cell of runs with a limit",
    ]


def test_damaged_records_are_listed_not_fatal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, record(0.5))
    broken = tmp_path / "t/e/s/zzz/seed-0/record.json"
    broken.parent.mkdir(parents=True)
    broken.write_text('{"status": "comp')
    for form in ("terminal", "md", "csv", "json"):
        assert main([str(tmp_path), "--format", form]) == 0
        captured = capsys.readouterr()
        assert str(broken).replace("_", "") in (captured.out + captured.err).replace("\\", "").replace(
            "_", ""
        )


def test_copied_folder_does_not_count_as_another_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, record(0.5, cell="000"))
    save(tmp_path, record(0.7, cell="000", seed=1))
    assert main([str(tmp_path), "--format", "json"]) == 0
    (before,) = json.loads(capsys.readouterr().out)["rows"]
    seed = next(tmp_path.glob("t/e/s/*/seed-0"))
    shutil.copytree(seed, seed.parent / "seed-2")
    shutil.copytree(tmp_path / "t", tmp_path / "a_backup")  # before the original in order
    assert main([str(tmp_path), "--format", "json"]) == 0
    captured = capsys.readouterr()
    (row,) = json.loads(captured.out)["rows"]
    assert (row["n"], row["mean"], row["std"]) == (2, before["mean"], before["std"])
    output = captured.out + captured.err
    for copy in (seed.parent / "seed-2", tmp_path / "a_backup"):
        assert str(copy) in output
    assert f"{seed}: a copy" not in output


def test_different_metrics_sizes_and_versions_are_separated_or_noted(tmp_path: Path) -> None:
    other = record(cell="b", metric="f1", test={"f1": 0.3}, dev={"f1": 0.3}, n_test=10)
    version = record(cell="c", n_test=11, versions={"result.task": "2"})
    records = [record(versions={"result.task": "1"}), other, version]
    apart = make_board(records)
    assert [(t.metric, len(t.rows)) for t in apart.tables] == [("f1", 1), ("accuracy", 1), ("accuracy", 1)]
    assert apart.tables[1].title.endswith("| test examples 10 | result.task 1")
    board = make_board(records, mix=True)
    assert [(t.metric, len(t.rows)) for t in board.tables] == [("accuracy", 2), ("f1", 1)]
    notes = "\n".join(board.tables[0].notes)
    assert "different metrics (accuracy, f1)" in notes
    assert "different sizes (10 and 11 examples)" in notes
    assert "different result.task (1, 2)" in notes


def test_costs_of_different_hosts_are_not_compared(rows: Rows) -> None:
    first, second = record(seed=0), record(seed=1, costs=Costs(train_seconds=9.0, host="other"))
    assert rows(first, second)[0]["train_seconds"] is None
    assert "2 hosts" in make_board([first, second]).tables[0].notes[0]


def test_group_by_fields_and_settings(rows: Rows) -> None:
    board_rows = rows(
        record(0.2, encoder="a", cell="1", variant={"optimizer.lr": 0.1}),
        record(0.4, encoder="b", cell="2", variant={"optimizer.lr": 0.1}),
        record(0.6, encoder="b", cell="3"),
        options=("--group-by", "optimizer.lr"),
    )
    assert [(r["optimizer.lr"], r["mean"], r["n"]) for r in board_rows] == [
        ("-", pytest.approx(0.6), 1),
        ("0.1", pytest.approx(0.3), 2),
    ]
    assert [r["encoder"] for r in board_rows] == ["b", None]


def with_configs(root: Path, *rates: float | None, **given: Any) -> Path:
    """Save records whose configurations differ in the learning rate, with equal variants."""
    records = [record(0.1 * (i + 1), cell=str(i), encoder=f"e{i}", **given) for i in range(len(rates))]
    save(root, *records)
    for folder, rate in zip(sorted(root.glob("t/e/s/*/seed-*")), rates, strict=True):
        config = {"body": {"name": "bilstm", "size": 3}, "optimizer": {"name": "adamw", "lr": rate}}
        if rate is not None:
            (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return root


def test_group_by_a_resolved_setting_that_is_in_no_variant(rows: Rows, tmp_path: Path) -> None:
    with_configs(tmp_path, 1e-3, 3e-5, None)
    board_rows = rows(options=("--group-by", "optimizer.lr", "body"))
    assert {(r["optimizer.lr"], r["body"], r["mean"]) for r in board_rows} == {
        ("0.001", "bilstm", 0.1), ("3e-05", "bilstm", 0.2), ("-", "-", 0.3),
    }  # fmt: skip


def test_group_by_counts_partial_records_when_they_are_shown(tmp_path: Path) -> None:
    with_configs(tmp_path, 1e-3, partial=8)
    assert main([str(tmp_path), "--partial", "--group-by", "optimizer.lr"]) == 0
    with pytest.raises(HarnessError, match=r"did you mean optimizer\.lr"):
        main([str(tmp_path), "--partial", "--group-by", "lr"])


def test_rows_pooled_over_more_than_seeds_have_a_note() -> None:
    two = [record(0.1, seed=0), record(0.2, seed=1, encoder="f", cell="c1")]
    assert (
        make_board(two, group_by=["strategy"])
        .tables[0]
        .notes[0]
        .startswith("note: ± is the standard deviation over seeds, encoders:")
    )
    same = [record(0.1, seed=0), record(0.2, seed=1)]
    assert make_board(same, group_by=["strategy"]).tables[0].notes == []
    other = record(0.2, cell="c2", variant={"optimizer.lr": 1.0})
    assert (
        "± is the standard deviation over variants"
        in make_board([record(), other], group_by=["encoder"]).tables[0].notes[0]
    )


def sized() -> list[Record]:
    """Build records of two encoders on 30, 100 and all 500 examples; one cell failed."""
    levels = [("a", 30, 0.2), ("a", 100, 0.4), ("a", 500, 0.8), ("b", 30, 0.1), ("b", 500, 0.9)]
    out = [
        record(score, encoder=encoder, cell=f"{encoder}{n}", seed=seed, n_train=n, data="d",
               variant={} if n == 500 else {"task.train_size": n})
        for encoder, n, score in levels
        for seed in (0, 1)
    ]  # fmt: skip
    lost = record(status="failed", encoder="b", cell="b100", variant={"task.train_size": 100}, reason="no")
    return [*out, lost]


@pytest.mark.parametrize("fields", [["encoder"], ["strategy"], ["metric"]])
def test_rows_are_never_means_over_training_set_sizes(fields: list[str]) -> None:
    (table,) = make_board(sized(), group_by=fields).tables
    for row in table.rows:
        assert len({r.n_train for r in row.complete}) <= 1
        assert row.labels["n_train"] in ("30", "100", "500")
    lost = next(row for row in table.rows if row.failed)
    assert lost.labels["n_train"] == "100"
    for names in (["encoder", "n_train"], ["encoder", "task.train_size"]):
        (named,) = make_board(sized(), group_by=names).tables
        assert all(list(row.labels) == names for row in named.rows)


def test_variants_are_selected_within_one_training_set_size() -> None:
    (table,) = make_board(sized(), select=True).tables
    assert [row.name for row in table.rows if row.mean is not None] == [
        "b/full", "a/full", "a/full task.train_size=100", "a/full task.train_size=30",
        "b/full task.train_size=30",
    ]  # fmt: skip
    assert all(row.tried == 1 for row in table.rows)


def test_rows_that_differ_only_in_training_set_size_are_labelled_with_it() -> None:
    """A size from a configuration file is in no variant."""
    board_rows = make_board([record(0.5, cell=f"c{n}", n_train=n) for n in (30, 500)]).tables[0].rows
    assert [row.labels["variant"] for row in board_rows] == ["n_train=30", "n_train=500"]


CONFIG: dict[str, object] = {
    "a": {"text": "words " * 40, "list": ["x: y", "z"], "deep": {"b": {"c": 1e-5}}, "none": None},
    "text": {"b": "'a: \n  deep:\n"},
    "a2": [1, 2],
}


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a.text", "words " * 40),
        ("a.list", ["x: y", "z"]),
        ("a.deep.b.c", 1e-5),
        ("a.deep", {"b": {"c": 1e-5}}),
        ("a.none", None),
        ("text.b", "'a: \n  deep:\n"),
        ("a2", [1, 2]),
        ("b", UNSET),
        ("a.c", UNSET),
        ("a.deep.b.c.d", UNSET),
        ("a.text.words", UNSET),
        ("", UNSET),
    ],
)
def test_settings_are_read_from_json_or_yaml(tmp_path: Path, form: str, key: str, value: object) -> None:
    text = json.dumps(CONFIG) if form == "json" else yaml.safe_dump(CONFIG, sort_keys=False)
    (tmp_path / f"config.{form}").write_text(text)
    one = record()
    assert Configs([(one, tmp_path)]).get(one, key) == value


def test_json_is_preferred_and_damaged_configurations_are_empty(tmp_path: Path) -> None:
    one = record()
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    (tmp_path / "config.json").write_text('{"seed": 2}')
    assert Configs([(one, tmp_path)]).get(one, "seed") == 2
    (tmp_path / "config.json").write_text('{"seed"')
    assert Configs([(one, tmp_path)]).get(one, "seed") == 1
    (tmp_path / "config.yaml").write_text("seed: [")
    assert Configs([(one, tmp_path)]).get(one, "seed") is UNSET
    assert Configs().get(one, "seed") is UNSET


def test_several_data_sets_under_one_name_are_in_separate_tables() -> None:
    records = [
        record(0.5, cell="a", data="ab12cd34ffff"),
        record(0.7, cell="b", data="00ff00ff0000", dev=0.9),
        record(0.6, cell="c", encoder="old"),
    ]
    assert {t.title.partition(" | data ")[2] for t in make_board(records).tables} == {
        "", "ab12cd34ffff", "00ff00ff0000",
    }  # fmt: skip
    (table,) = make_board(records, mix=True).tables
    assert [row.labels["variant"] for row in table.rows] == ["data=00ff00ff", "", "data=ab12cd34"]
    assert table.notes == [
        "warning: task t has results of 2 different data sets; give each its own task.name"
    ]
    assert len(make_board(records, select=True, mix=True).tables[0].rows) == 3
    assert make_board([records[0], records[2]], mix=True).tables[0].notes == []


def test_tasks_can_be_chosen_or_given_by_their_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for task in ("one", "two"):
        r = record(task=task)
        write_record(tmp_path / task / "e" / "s" / "c" / "seed-0", r)
    main([str(tmp_path), "--task", "two"])
    assert "one |" not in capsys.readouterr().out
    main([str(tmp_path / "one")])
    out = capsys.readouterr().out
    assert "one |" in out
    assert "two |" not in out
    with pytest.raises(HarnessError, match="did you mean one"):
        main([str(tmp_path), "--task", "oen"])


def test_csv_and_json_have_integer_counts_and_rounded_numbers(rows: Rows) -> None:
    (row,) = rows(*(record(s, seed=i, parameters=11 + i) for i, s in enumerate((0.7, 0.85))))
    assert (row["mean"], row["parameters"], row["dev"]) == (0.775, 12, 0.775)
    assert isinstance(row["parameters"], int)
    assert str(row["std"]) == "0.106066"


def test_help_describes_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "a 95 % confidence interval over seeds and examples" in " ".join(capsys.readouterr().out.split())


def test_error_for_an_unknown_group_by_field_suggests_a_similar_one(tmp_path: Path) -> None:
    save(tmp_path, record())
    with pytest.raises(HarnessError, match="did you mean encoder"):
        main([str(tmp_path), "--group-by", "encodr"])


def test_select_and_group_by_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="exclude each other"):
        main([str(save(tmp_path, record())), "--select", "dev", "--group-by", "encoder"])


@pytest.mark.parametrize("make", [False, True])
def test_error_for_a_folder_without_records_names_the_fix(tmp_path: Path, make: bool) -> None:
    folder = tmp_path / "r"
    if make:
        folder.mkdir()
    with pytest.raises(HarnessError, match="results_dir of a run"):
        main([str(folder)])


def test_hostile_names_keep_every_format_well_formed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, record(encoder=HOSTILE, variant={HOSTILE: HOSTILE}))
    main([str(tmp_path), "--format", "csv"])
    (line,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert line["encoder"] == HOSTILE.replace("\x1b", "\\x1b")  # a csv may be printed, too
    main([str(tmp_path), "--format", "md"])
    out = capsys.readouterr().out
    table = [line for line in out.splitlines() if line.startswith("|")]
    assert len(table) == 3
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert "<x>" not in out
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "한국어" in out


def test_markup_in_a_name_is_not_interpreted(tmp_path: Path) -> None:
    assert "[red]e[/red] :smile:" in terminal(make_board([record(encoder="[red]e[/red] :smile:")]), width=80)


@pytest.mark.parametrize("width", [40, 80, 160])
def test_table_fits_the_terminal_without_truncated_numbers(width: int) -> None:
    long = "a_very_long_encoder_name_of_somebody" * 2
    records = [record(0.12345, seed=s, encoder=long, variant={"optimizer.lr": 1e-5}) for s in range(2)]
    out = terminal(make_board(records), width=width)
    assert max(map(len, out.splitlines())) <= width
    assert "0.1235 ± 0.0000" in out
    assert "".join(re.findall(r"[a-z_]+", out)).count("somebody") or width == 40


def test_output_format_follows_the_suffix(tmp_path: Path) -> None:
    save(tmp_path / "r", record(0.5))
    for name, start in (
        ("x.md", "## t"),
        ("x.csv", "task,"),
        ("x.json", "{"),
        ("x.txt", "t | test accuracy"),
    ):
        main([str(tmp_path / "r"), "--output", str(tmp_path / name)])
        assert (tmp_path / name).read_text().startswith(start)


def test_unknown_suffix_is_rejected(tmp_path: Path) -> None:
    save(tmp_path / "r", record())
    output = tmp_path / "b.xlsx"
    with pytest.raises(HarnessError, match=r"\.md, \.csv, \.json, \.tex, \.html, \.txt, not \.xlsx"):
        main([str(tmp_path / "r"), "--output", str(output)])
    assert not output.exists()
    assert main([str(tmp_path / "r"), "--output", str(output), "--format", "csv"]) == 0


def test_ten_thousand_records_in_five_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(0)
    for i in range(10_000):
        r = record(
            draw.random(), encoder=f"e{i % 97}", cell=f"{i // 5:012x}", seed=i % 5, dev_history=[0.5] * 10
        )
        write_plain(tmp_path / "t" / "e" / "s" / r.cell / f"seed-{r.seed}", r)
    begin = time.process_time()
    main([str(tmp_path)])
    assert time.process_time() - begin < 5
    assert len(capsys.readouterr().out.splitlines()) > 2000


def test_settings_of_two_thousand_cells_are_found_in_two_seconds(tmp_path: Path) -> None:
    config = {"encoder": {"recipe": {f"k{i}": i for i in range(60)}}, "optimizer": {"lr": 1e-3}}
    for i in range(2000):
        folder = tmp_path / "t" / "e" / "s" / f"{i:012x}" / "seed-0"
        write_plain(folder, record(cell=f"{i:012x}"))
        (folder / "config.json").write_text(json.dumps(config))
    begin = time.process_time()
    main([str(tmp_path), "--group-by", "optimizer.lr"])
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("form", ["terminal", "md"])
def test_rows_with_warnings_are_marked_and_the_text_is_below_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    text = "100% of the words are unknown to the encoder"
    warned = [record(0.5, cell="a", encoder="x", seed=i, warnings=[text] * (i < 2)) for i in range(3)]
    save(tmp_path, *warned, record(0.8, cell="b", encoder="y"))
    assert main([str(tmp_path), "--format", form]) == 0
    lines = capsys.readouterr().out.splitlines()
    (marked,) = [line for line in lines if "0.5000" in line]
    (other,) = [line for line in lines if "0.8000" in line]
    assert "0.5000 ± 0.0000 !" in marked
    assert "!" not in other
    (below,) = [line for line in lines if text in line]
    assert "x/full (2 of 3 seeds)" in below


def test_a_warning_of_all_rows_names_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = [record(0.5, cell=c, encoder=c, warnings=["copies in train and test"]) for c in "ab"]
    save(tmp_path, *same)
    assert main([str(tmp_path)]) == 0
    assert "\n! copies in train and test\n" in capsys.readouterr().out
