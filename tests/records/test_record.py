"""The record's schema: round trips, and errors for damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.data.text import Example, Text
from harness.errors import HarnessError
from harness.records.lifecycle import load_record_or_none
from harness.records.predictions import read_predictions, write_predictions
from harness.records.record import Costs, Record, iter_records, read_record, write_record
from harness.task import Prediction
from tests.helpers.cell_runners import make_cell


def record() -> Record:
    return Record(
        "complete", "task", "encoder", "strategy", "0123456789ab", 0, metric="m", test={"m": 0.5},
        dev_history=[0.1, None], costs=Costs(train_seconds=1.5), partial=3, epoch=2,
    )  # fmt: skip


def test_round_trip(tmp_path: Path) -> None:
    write_record(tmp_path, record())
    assert read_record(tmp_path) == record()


def test_nan_is_none_on_disk(tmp_path: Path) -> None:
    bad = record()
    bad.test = {"m": float("nan")}
    write_record(tmp_path, bad)
    assert read_record(tmp_path).test == {"m": None}
    assert "NaN" not in (tmp_path / "record.json").read_text()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("test", None), ("test", {"m": "0.9"}), ("variant", None), ("variant", []), ("reason", None),
        ("versions", None), ("task", None), ("encoder", 5), ("n_test", None), ("n_test", True),
        ("parameters", "x"), ("maximize", "no"), ("costs", {"train_seconds": "x"}), ("costs", None),
        ("status", "done"), ("schema", "1"), ("schema", 99), ("dev_history", "x"), ("seed", 1.5),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_type_is_named(tmp_path: Path, field: str, value: Any) -> None:
    write_record(tmp_path, record())
    data = json.loads((tmp_path / "record.json").read_text())
    (tmp_path / "record.json").write_text(json.dumps({**data, field: value}))
    with pytest.raises(HarnessError, match=r"record.json"):
        read_record(tmp_path)


def test_damaged_records_are_listed_with_the_good_ones(tmp_path: Path) -> None:
    for seed in (0, 1):
        folder = tmp_path / "t/e/s/c" / f"seed-{seed}"
        folder.mkdir(parents=True)
        write_record(folder, record())
    (folder / "record.json").write_text('{"status": "compl')
    types = [type(r).__name__ for _, r in iter_records(tmp_path)]
    assert types == ["Record", "HarnessError"]


def test_a_record_of_a_newer_version_is_not_changed(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, "c")
    cell.folder.mkdir(parents=True)
    write_record(cell.folder, record())
    data = json.loads((cell.folder / "record.json").read_text())
    (cell.folder / "record.json").write_text(json.dumps({**data, "schema": 99}))
    with pytest.raises(HarnessError, match="newer"):
        load_record_or_none(cell)
    assert [p.name for p in cell.folder.iterdir()] == ["record.json"]
    (cell.folder / "record.json").write_text("{")
    assert load_record_or_none(cell) is None
    assert [p.name.split("-")[0] for p in cell.folder.iterdir()] == ["record.json.damaged"]


def test_lone_surrogates_are_written_and_read_back(tmp_path: Path) -> None:
    text = "cut \ud83d emoji, 한국"
    example = Example(f"id {text}", (Text.from_string(text),), {"text": text}, tags=(text,))
    write_predictions(tmp_path, {"test": ([example], {example.id: Prediction(text, extra=[text])})})
    (row,) = read_predictions(tmp_path)
    assert (row["gold"], row["prediction"], row["extra"]) == ({"text": text}, text, [text])
    record = Record(status="failed", task="t", encoder="e", strategy="s", cell="c", seed=0, reason=text)
    write_record(tmp_path, record)
    assert read_record(tmp_path).reason == text


def test_fields_added_by_a_later_version_are_ignored(tmp_path: Path) -> None:
    write_record(tmp_path, Record("complete", "t", "e", "s", "c", 0))
    path = tmp_path / "record.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "later": 1, "costs": {**data["costs"], "later_seconds": 1.0}}))
    assert read_record(tmp_path).costs.train_seconds == 0.0
    for costs in ("text", 5, [1]):
        path.write_text(json.dumps({**data, "costs": costs}))
        with pytest.raises(HarnessError, match="not a record"):
            read_record(tmp_path)
