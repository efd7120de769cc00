"""Parquet and Arrow files: class names in each form of metadata, and damaged or unusual values."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from harness.data.reading.formats import arrow
from harness.data.reading.tables import read_table
from harness.errors import HarnessError

NAMES = ["O", "B-PER"]
CLASS = {"names": NAMES, "_type": "ClassLabel"}


def write(path: Path, table: pyarrow.Table, features: object = None) -> Path:
    if features is not None:
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        table = table.replace_schema_metadata(metadata)
    parquet.write_table(table, path)
    return path


@pytest.mark.parametrize(
    "feature",
    [
        [CLASS],
        {"feature": CLASS, "_type": "Sequence"},
        {"feature": CLASS, "length": -1, "_type": "Sequence"},
        {"feature": CLASS, "_type": "List"},
    ],
    ids=["list", "sequence", "sequence with length", "List"],
)
def test_names_of_numbered_tags_are_read_from_every_form_of_the_metadata(
    tmp_path: Path, feature: object
) -> None:
    path = write(tmp_path / "a.parquet", pyarrow.table({"tags": [[0, 1], [0]]}), {"tags": feature})
    assert read_table(path).names == {"tags": NAMES}


@pytest.mark.parametrize("features", [{"tags": {"_type": "Unknown"}}, 3, {"tags": {"names": 5}}, []])
def test_damaged_metadata_give_no_names(tmp_path: Path, features: object) -> None:
    path = write(tmp_path / "a.parquet", pyarrow.table({"tags": [[0, 1]]}), features)
    assert read_table(path).names == {}


def test_strings_that_are_not_utf_8_are_an_error_of_their_column_only(tmp_path: Path) -> None:
    raw = pyarrow.array([b"fine", b"\xff\xfe"])
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, raw.buffers())
    table = read_table(write(tmp_path / "a.parquet", pyarrow.table({"text": text, "n": [1, 2]})))
    assert list(table.data["n"]) == [1, 2]
    with pytest.raises(HarnessError, match=r"a\.parquet, column text: .*Invalid UTF8"):
        list(table.data["text"])


def test_a_time_out_of_range_is_an_error_with_its_row(tmp_path: Path) -> None:
    when = pyarrow.array([0, 2**61], pyarrow.int64()).cast(pyarrow.timestamp("us"))
    table = read_table(write(tmp_path / "a.parquet", pyarrow.table({"when": when})))
    with pytest.raises(HarnessError, match="column when, row 2: invalid values"):
        list(table.data["when"])
    assert read_table(write(tmp_path / "b.parquet", pyarrow.table({"when": when.slice(0, 1)}))).row(0) == {
        "when": datetime.datetime(1970, 1, 1)
    }


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    with pytest.raises(HarnessError, match="two columns are named 'a'"):
        read_table(write(tmp_path / "a.parquet", table))


def test_a_size_out_of_proportion_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant column takes a few bytes in the file; the minimum size is lowered here."""
    monkeypatch.setattr(arrow, "_MIN_LIMIT", 1000)
    path = write(tmp_path / "a.parquet", pyarrow.table({"a": [7] * 2_000_000, "b": [7] * 2_000_000}))
    with pytest.raises(HarnessError, match=r"declares 2,000,000 rows .* times its size"):
        read_table(path)


def test_damaged_offsets_of_an_arrow_file_do_not_end_the_process(tmp_path: Path) -> None:
    """pyarrow aborts when it converts a string of negative length."""
    table = pyarrow.table({"text": ["aa", "bbb", "c"]})
    path = tmp_path / "a.arrow"
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    offsets = b"".join(n.to_bytes(4, "little") for n in (0, 2, 5, 6))
    data = path.read_bytes()
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, offsets[:4] + b"\xff\xff\xff\xf0" + offsets[8:]))
    with pytest.raises(HarnessError, match="invalid values"):
        list(read_table(path).data["text"])
