"""The HTML report's data and page: a single file, escaped, complete, and generated within the time limit."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import resource
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.data.reading.card import CardExample, make_card
from harness.data.reading.log import ReadLog
from harness.errors import HarnessError
from harness.leaderboard.command import main
from harness.leaderboard.html.data import data_cards, provenance
from harness.leaderboard.html.page import literal
from harness.records.record import Costs, Record, write_record
from tests.helpers.boards import HOSTILE, SYSTEMS, grid, labels, write


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grid(tmp_path_factory.mktemp("grid"))


def made(folder: Path, out: Path, *options: str) -> str:
    assert main([str(folder), "--output", str(out / "r.html"), *options]) == 0
    return (out / "r.html").read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert match
    data = json.loads(match[1])
    assert isinstance(data, dict)
    return data


def report(folder: Path, out: Path, *options: str) -> dict[str, Any]:
    return data_of(made(folder, out, *options))


class Elements(HTMLParser):
    """Collect the elements of a page as pairs of tag and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_page_is_one_file_that_runs_only_its_script(results: Path, tmp_path: Path) -> None:
    page = made(results, tmp_path)
    elements = Elements()
    elements.feed(page)
    assert [tag for tag, _ in elements.seen].count("script") == 2
    assert not [a for _, a in elements.seen if "src" in a]
    assert [a["href"] for tag, a in elements.seen if tag == "link"] == ["data:,"]
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in page
    assert "@@" not in page.replace(HOSTILE, "")


def test_text_of_data_stays_inside_the_data(results: Path, tmp_path: Path) -> None:
    page = made(results, tmp_path)
    assert HOSTILE not in page
    data = data_of(page)
    assert HOSTILE in {r["labels"]["encoder"] for t in data["tables"] for r in t["rows"]}
    assert any(HOSTILE in reason for _, reason in data["failed"])


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "a & b", "\u2028\u2029", "한국어", "@@DATA@@"])
def test_any_text_is_a_literal(text: str) -> None:
    encoded = literal({text: text})
    assert not set(encoded) & set("<>&\u2028\u2029")
    assert json.loads(encoded) == {text: text}


def test_lone_surrogates_can_be_written() -> None:
    assert literal(["\ud83d"]).encode() == b'["\\ud83d"]'


def test_html_is_chosen_by_format_too(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(results), "--format", "html"]) == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")


def test_rows_equal_those_of_the_board(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = report(results, tmp_path)["tables"]
    capsys.readouterr()
    assert main([str(results), "--format", "json"]) == 0
    plain = json.loads(capsys.readouterr().out)["rows"]
    rows = [(t["task"], row) for t in tables for row in t["rows"]]
    assert len(rows) == len(plain)
    for (task, row), expected in zip(rows, plain, strict=True):
        assert (task, row["mean"], row["n"], row["tied"]) == (
            expected["task"], expected["mean"], expected["n"], expected["tied"],
        )  # fmt: skip
        assert (row["ci"] or [None, None]) == [expected["ci_low"], expected["ci_high"]]
    assert len(tables[0]["rows"][0]["seeds"]) == 3


def test_failed_cells_notes_and_provenance_are_included(results: Path, tmp_path: Path) -> None:
    data = report(results, tmp_path)
    assert data["cells"]["failed"] == 2
    assert len(data["failed"]) == 2
    assert ["commit", "0123456789"] in data["provenance"]
    assert data["tables"][0]["run_notes"] == [["split off the training file", 21]]


def test_compared_pairs_equal_those_of_compare(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--task", "qa", "--compare", "bert_base/full", "elmo/frozen")
    table = report(results, tmp_path, *options)["tables"][0]
    names = [row["name"] for row in table["rows"]]
    assert [names[i] for i in table["selected"]] == ["bert_base/full", "elmo/frozen"]
    capsys.readouterr()
    main([str(results), "--format", "json", *options])
    (expected,) = json.loads(capsys.readouterr().out)["comparisons"]
    (actual,) = [f for f in table["pairs"]["tests"] if f[:2] == table["selected"]]
    assert actual[2:] == [expected[k] for k in ("effect", "ci_low", "ci_high", "p")]


def test_unknown_row_name_is_rejected(results: Path, tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="--compare nobody/full"):
        made(results, tmp_path, "--compare", "nobody/full", "elmo/full")


def test_disagreements_are_capped_and_counted(results: Path, tmp_path: Path) -> None:
    table = report(results, tmp_path, "--task", "qa")["tables"][0]
    d = table["disagreements"]
    assert len(d["pairs"]) == len(SYSTEMS) * (len(SYSTEMS) - 1) / 2
    for pair in d["pairs"]:
        assert len(pair["shown"]) <= 20
        assert pair["differ"] >= pair["a_right"] + pair["b_right"]
        for k in pair["shown"]:
            example = d["examples"][str(k)]
            assert example["predictions"][str(pair["a"])] != example["predictions"][str(pair["b"])]
    one = next(iter(d["examples"].values()))
    assert one["gold"].startswith("answer ")


def test_numeric_disagreements_show_the_largest_differences(tmp_path: Path) -> None:
    gold = [float(i) for i in range(40)]
    for name, off in (("near", 0.1), ("far", 3.0)):
        predictions = [g + off * (i % 5) for i, g in enumerate(gold)]
        write(tmp_path / "r", gold, predictions, np.arange(40) % 2 == 0, encoder=name)
    d = report(tmp_path / "r", tmp_path)["tables"][0]["disagreements"]
    (pair,) = d["pairs"]
    names = [r["name"] for r in report(tmp_path / "r", tmp_path)["tables"][0]["rows"]]
    near = "a_right" if names[pair["a"]] == "near/full" else "b_right"
    assert d["numeric"]
    assert (pair["differ"], pair[near], len(pair["shown"])) == (32, 32, 20)
    assert all(k % 5 >= 2 for k in pair["shown"])


def test_rows_on_different_examples_are_not_compared(tmp_path: Path) -> None:
    labels(tmp_path / "r", 0.9, encoder="a", n=50)
    labels(tmp_path / "r", 0.5, encoder="b", n=60)
    tables = report(tmp_path / "r", tmp_path)["tables"]
    assert [len(t["rows"]) for t in tables] == [1, 1]
    assert all(t["disagreements"] is None and t["pairs"] is None for t in tables)


def test_heat_map_does_not_select_by_test_score(tmp_path: Path) -> None:
    for level, dev, lr in ((0.9, 0.1, 1), (0.4, 0.8, 2)):
        given = {"cell": f"c{lr}", "variant": {"optimizer.lr": lr}, "dev": {"accuracy": dev}}
        labels(tmp_path / "r", level, encoder="a", **given)
    labels(tmp_path / "r", 0.6, encoder="b")
    table = report(tmp_path / "r", tmp_path)["tables"][0]
    shown = {table["heat"]["encoders"][e]: (row, n) for e, _, row, n in table["heat"]["cells"]}
    assert table["rows"][shown["a"][0]]["labels"]["variant"] == "optimizer.lr=2"
    assert shown["a"][1] == 2


def test_heat_map_shows_only_the_largest_training_set(tmp_path: Path) -> None:
    for n, level in ((30, 0.9), (500, 0.5)):
        for encoder in "ab":
            variant = {"task.train_size": n} if n == 30 else {}
            given: dict[str, Any] = {"cell": f"{encoder}{n}", "encoder": encoder, "variant": variant}
            labels(tmp_path / "r", level, n_train=n, **given)
    table = report(tmp_path / "r", tmp_path)["tables"][0]
    assert table["heat"]["size"] == 500
    assert {table["rows"][row]["cell"] for *_, row, _ in table["heat"]["cells"]} == {
        "a500",
        "b500",
    }
    assert {(p["line"], p["n_train"]) for p in table["curves"]} == {
        (f"{encoder}/full", n) for encoder in "ab" for n in (30, 500)
    }


def test_pareto_fronts_are_within_one_training_set_size(tmp_path: Path) -> None:
    for n, level, spent in ((30, 0.3, 1.0), (500, 0.9, 5.0), (500, 0.5, 9.0)):
        given: dict[str, Any] = {"encoder": f"e{spent:g}", "n_train": n, "costs": Costs(train_seconds=spent)}
        labels(tmp_path / "r", level, **given)
    rows = report(tmp_path / "r", tmp_path)["tables"][0]["rows"]
    fronts = {row["labels"]["encoder"]: (row["n_train"], "train_seconds" in row["front"]) for row in rows}
    assert fronts == {"e1": (30, True), "e5": (500, True), "e9": (500, False)}


def test_tasks_without_a_common_system_have_a_note(tmp_path: Path) -> None:
    for task, encoder in (("a", "x"), ("b", "y")):
        labels(tmp_path / "r", 0.5, task=task, encoder=encoder)
    across = report(tmp_path / "r", tmp_path)["across"]
    assert across["rows"] == []
    assert "no system has a score on all 2 tasks (systems: a 1, b 1)" in across["notes"][0]


def test_settings_of_all_rows_are_shown_once(tmp_path: Path) -> None:
    for encoder, lr in (("a", 1), ("b", 2)):
        labels(tmp_path / "r", 0.5, encoder=encoder, variant={"trainer.epochs": 3, "optimizer.lr": lr})
    table = report(tmp_path / "r", tmp_path)["tables"][0]
    assert table["common"] == "trainer.epochs=3"
    assert sorted(r["short"] for r in table["rows"]) == ["a/full optimizer.lr=1", "b/full optimizer.lr=2"]


def test_layers_of_the_mix(results: Path, tmp_path: Path) -> None:
    table = report(results, tmp_path, "--task", "topics")["tables"][0]
    assert {table["rows"][m["row"]]["labels"]["encoder"] for m in table["mixes"]} == {"elmo"}
    one = table["mixes"][0]
    assert (one["layers"], one["mean"], len(one["seeds"])) == ([0, 1, 2], [0.2, 0.5, 0.3], 3)
    assert {p["n_train"] for p in table["curves"]} == {100, 300, 1000}


def test_report_of_a_board_without_scores(tmp_path: Path) -> None:
    write_record(tmp_path / "r" / "t" / "e" / "s" / "c" / "seed-0", Record("failed", "t", "e", "s", "c", 0))
    data = report(tmp_path / "r", tmp_path)
    assert data["tables"][0]["rows"][0]["state"] == "failed"
    assert data["tables"][0]["heat"] is None


def test_damaged_predictions_affect_only_their_views(tmp_path: Path) -> None:
    for encoder in ("a", "b"):
        labels(tmp_path / "r", 0.5, encoder=encoder)
    (broken,) = (tmp_path / "r").glob("t/a/*/*/seed-0/predictions.parquet")
    broken.write_bytes(b"PAR1 no")
    table = report(tmp_path / "r", tmp_path)["tables"][0]
    assert [bool(row["ci"]) for row in table["rows"]].count(True) == 1
    assert table["disagreements"] is None


def test_a_budget_is_answered(results: Path, tmp_path: Path) -> None:
    data = report(results, tmp_path, "--budget", "train_seconds=100")
    assert data["budget"]["title"] == "Within train_seconds <= 100"
    assert any("qa" in line for line in data["budget"]["lines"])


def test_provenance_counts_what_differs() -> None:
    records = [
        Record("complete", "t", "e", "s", "c", seed, versions={"torch": v}, costs=Costs(host="h"))
        for seed, v in enumerate(("2.8", "2.9", "2.9"))
    ]
    counted = dict(provenance(records))
    assert counted["torch"] == "2.9 (2), 2.8 (1)"
    assert (counted["host"], counted["complete cells"]) == ("h", "3")
    assert provenance([]) == [("complete cells", "0")]


@pytest.mark.long
def test_three_hundred_rows_in_a_minute_fifteen_megabytes_two_gigabytes(tmp_path: Path) -> None:
    for k in range(300):
        for seed in range(3):
            level = 0.5 + k / 1000
            labels(
                tmp_path / "r", level, n=2000, draw=k, seed=seed, encoder=f"e{k // 10}", strategy=f"s{k % 10}"
            )  # fmt: skip
    out = tmp_path / "r.html"
    program = "import sys; from harness.cli.main import main; sys.exit(main())"
    begin = time.perf_counter()
    command = [sys.executable, "-c", program, "leaderboard", str(tmp_path / "r"), "--intervals", "300"]
    subprocess.run([*command, "--output", str(out)], check=True, timeout=240)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"{seconds:.1f} s, {out.stat().st_size / 1e6:.2f} MB, {peak:.2f} GiB")
    assert len(data_of(out.read_text())["tables"][0]["rows"]) == 300
    assert out.stat().st_size <= 15e6
    assert peak <= 2
    assert seconds <= 60


def test_data_cards_are_counted_and_damaged_ones_reported() -> None:
    log = ReadLog()
    log.given("a.csv", "format", "csv")
    card = make_card(log, {"train": [CardExample(("some text",), ("x",))]}).to_json()
    cards = ({}, card, card, {"files": 3})
    records = [Record("complete", "t", "e", "s", "c", i, data_card=card) for i, card in enumerate(cards)]
    first, second = data_cards(records)
    assert first["cells"] == 2
    assert first["lines"][0] == "a.csv: given format=csv"
    assert "damaged" in second["lines"][0]
