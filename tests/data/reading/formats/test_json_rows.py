"""JSON of every published shape, and JSON that is hostile."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from harness.data.reading.log import ReadLog
from harness.data.reading.tables import ReadOptions, read_table
from harness.errors import HarnessError

ROWS = [{"text": f"the film number {i}", "label": "pn"[i % 2]} for i in range(12)]
PAIRS = [[row["text"], row["label"]] for row in ROWS]
COLUMNS = {key: [row[key] for row in ROWS] for key in ("text", "label")}
BY_ROW = {f"q{i}": row for i, row in enumerate(ROWS)}
BY_COLUMN = {key: {str(i): v for i, v in enumerate(values)} for key, values in COLUMNS.items()}
SPLIT = {"columns": ["text", "label"], "index": list(range(12)), "data": PAIRS}


def write(path: Path, data: object) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


@pytest.mark.parametrize(
    "data",
    [ROWS, PAIRS, COLUMNS, BY_ROW, BY_COLUMN, SPLIT, {"version": "1.0", "data": ROWS},
     {"info": {"x": 1}, "examples": ROWS, "errors": []}, {"rows": PAIRS}],
    ids=["rows", "pairs", "columns", "by row", "by column", "split", "version", "info", "key"],
)  # fmt: skip
def test_shapes(tmp_path: Path, data: object) -> None:
    table = read_table(write(tmp_path / "a.json", data))
    assert [{k: row[k] for k in ("text", "label")} for row in map(table.row, range(len(table)))] == ROWS


def test_columns_that_are_lists_of_lists_stay_columns(tmp_path: Path) -> None:
    data = {"tokens": [["a", "b"], ["c"]], "tags": [["X", "Y"], ["X"]]}
    assert read_table(write(tmp_path / "a.json", data)).row(1) == {"tokens": ["c"], "tags": ["X"]}


@pytest.mark.parametrize("rows", [ROWS, PAIRS])
def test_a_split_of_a_file_with_all_of_them_is_named_after_two_colons(
    tmp_path: Path, rows: list[object]
) -> None:
    path = write(tmp_path / "all.json", {"train": rows, "val": rows[:11], "oos_test": rows[:1]})
    with pytest.raises(HarnessError, match=r"which split .*all\.json::train .*all\.json::val"):
        read_table(path)
    log = ReadLog()
    table = read_table(Path(f"{path}::val"), log=log)
    assert list(table.data["text"]) == COLUMNS["text"][:11]
    assert log.facts[f"{path}::val"]["rows"].value == "key val"
    with pytest.raises(HarnessError, match="no key 'dev'"):
        read_table(Path(f"{path}::dev"))


def test_lists_under_several_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"which key has the rows\? Set .*::good .*::bad"):
        read_table(write(tmp_path / "a.json", {"good": ROWS, "bad": ROWS[:2]}))


def test_pairs_whose_label_is_not_clear_need_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [["a b", "c d"], ["e f", "g h"]])
    with pytest.raises(HarnessError, match="which column is the label"):
        read_table(path)
    assert read_table(path, ReadOptions(columns=["x", "y"])).row(0) == {"x": "a b", "y": "c d"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", '[{"a": ' + "[" * 500 + "]" * 500 + "}]", "nested too deeply"),
        ("a.jsonl", '{"a":' * 100_000, "line 1: nested too deeply"),
        ("a.jsonl", '{"a": ' + "[" * 500 + "]" * 500 + "}", "line 1: nested too deeply"),
        ("a.json", f'[{{"label": {"9" * 5000}}}]', "too many digits"),
        ("a.jsonl", f'{{"label": 1}}\n{{"label": {"9" * 5000}}}', "line 2: .*too many digits"),
        ("a.json", "3", "neither a list of objects"),
        ("a.json", '{"a": {"b": 1}, "c": 2}', "its keys are a, c"),
        ("a.jsonl", "".join(f'{{"k{i}": 1}}\n' for i in range(2000)), "2,000 rows have 2,000 different keys"),
        ("a.jsonl", json.dumps([list(range(10_000))]), "is not an object"),
    ],
)
def test_hostile_json_is_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(HarnessError, match=message) as error:
        read_table(write(tmp_path / name, text))
    assert len(str(error.value)) < 400


def test_bad_lines_are_skipped_and_listed(tmp_path: Path) -> None:
    lines = ['{"text": "a"}', "{bad", "[1]", "null", f'{{"text": {"9" * 5000}}}', '{"text": "b"}']
    log = ReadLog(on_error="skip")
    table = read_table(write(tmp_path / "a.jsonl", "\n".join(lines)), log=log)
    assert (list(table.data["text"]), list(table.at)) == (["a", "b"], [1, 6])
    assert sorted(row.where.rpartition(" ")[2] for row in log.skipped) == ["2", "3", "4", "5"]


def test_lone_surrogates_are_replaced_and_pairs_kept(tmp_path: Path) -> None:
    """No encoding can store them, so that they would fail when predictions are written."""
    text = '{"text": "a\\ud800b \\ud83d\\ude80", "\\uDFFF": ["\\udc00"]}'
    for name in ("a.jsonl", "a.json"):
        row = read_table(write(tmp_path / name, text if name == "a.jsonl" else f"[{text}]")).row(0)
        assert row == {"text": "a\ufffdb \U0001f680", "\ufffd": ["\ufffd"]}


def test_infinity_is_a_value_for_the_task_to_judge(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "a.jsonl", '{"label": Infinity}\n{"label": 1e999}\n'))
    assert list(table.data["label"]) == [math.inf, math.inf]
