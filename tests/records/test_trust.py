"""Stored cells name only installed parts and those of the user's folders; bounded YAML; links."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.config.stored import read_config
from harness.errors import HarnessError
from harness.records.record import Record, iter_records, read_record, write_config, write_record
from harness.records.stored_files import MAX_NODES, LeavesResults, cell_file, parse_yaml, read_bytes
from harness.records.trust import Trust

STATIC = {"_target_": "harness.encoders.static.load", "name": "renamed"}
CALLS = [
    {"encoder": {"_target_": "os.system", "name": "x"}},
    {"encoder": {**STATIC, "members": {"first": {"_target_": "os.system"}}}},
    {"encoder": {**STATIC, "_files_": "os.listdir"}},
    {"encoder": {**STATIC, "_check_": "os.listdir"}},
    {"encoder": {**STATIC, "adapt": {"module": "antigravity"}}},
    {"encoder": {**STATIC, "adapt": {"refuse": "os.system"}}},
    {"encoder": {**STATIC, "recipe": {"full": {"body": {"_target_": "os.system"}}}}},
    {"task": {"_target_": "subprocess.run", "args": "true"}},
    {"task": {"_target_": ["os.system"]}},
    {"body": [{"_target_": "os.system"}]},
    {"logger": {"_target_": "os.system"}},
]


EXPANDING = "x: &x0 [1, 2]\n" + "".join(f"x{i}: &x{i + 1} [{', '.join([f'*x{i}'] * 9)}]\n" for i in range(9))
"""Nine levels of nine aliases each: two billion values."""


@pytest.mark.parametrize("config", CALLS)
def test_a_stored_configuration_names_only_installed_parts(config: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "t" / "e" / "s" / "id" / "seed-0"
    write_config(folder, config)
    with pytest.raises(HarnessError, match=r"config.yaml: .* is not that of an installed part"):
        read_config(folder)
    assert read_config(folder, Trust(everything=True)) == config


def test_parts_of_the_users_folders_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "conf" / "task").mkdir(parents=True)
    (tmp_path / "conf" / "task" / "mine.yaml").write_text("_target_: my_package.Task\n")
    folder = tmp_path / "results" / "t" / "e" / "s" / "id" / "seed-0"
    write_config(folder, {"task": {"_target_": "my_package.Task"}, "encoder": STATIC})
    assert read_config(folder, Trust((tmp_path / "conf",)))["encoder"] == STATIC
    with pytest.raises(HarnessError, match=r"my_package\.Task"):
        read_config(folder)


def test_the_metric_of_a_record_is_imported_only_if_a_task_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(HarnessError, match="not the metric of an installed task"):
        Trust().metric("planted.FROM_STATS")
    assert "planted" not in sys.modules
    metric = Trust().metric("harness_tasks.classification.scoring.FROM_STATS")
    assert metric.range("accuracy") == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (EXPANDING, "values"),
        ("a: &a [*a]", "contains it"),
        ("[" * 5000, "nest|depth|limit|flow"),
        ("a: !!python/object/apply:os.system [true]", "constructor"),
    ],
    ids=["expansion", "cycle", "nesting", "python"],
)
def test_hostile_yaml_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_yaml(text)
    assert parse_yaml("a: &x [1]\nb: *x") == {"a": [1], "b": [1]}
    assert MAX_NODES > 1000


def _cell(results: Path) -> Path:
    folder = results / "t" / "e" / "s" / "id" / "seed-0"
    write_record(folder, Record("complete", "t", "e", "s", "id", 0))
    return folder


@pytest.mark.parametrize("level", range(6))
def test_links_that_leave_the_results_folder_are_not_followed(level: int, tmp_path: Path) -> None:
    """A link at any level, from the task's folder to the file; one within the results folder is followed."""
    outside = _cell(tmp_path / "outside")
    inside = tmp_path / "results"
    parts = [*outside.relative_to(tmp_path / "outside").parts, "record.json"][: level + 1]
    link = inside.joinpath(*parts)
    link.parent.mkdir(parents=True)
    link.symlink_to((tmp_path / "outside").joinpath(*parts))
    folder = inside / "t" / "e" / "s" / "id" / "seed-0"
    with pytest.raises(LeavesResults):
        read_record(folder)
    with pytest.raises(LeavesResults):
        cell_file(folder, "record.json")
    if level < 5:
        with pytest.raises(LeavesResults):
            write_record(folder, Record("complete", "t", "e", "s", "id", 0))
    ((_, found),) = iter_records(inside)
    assert isinstance(found, LeavesResults)
    original = _cell(inside / "moved")
    assert read_record(original).cell == "id"
    (inside / "u").symlink_to(inside / "moved" / "t")
    assert [type(r) for _, r in iter_records(inside) if not isinstance(r, LeavesResults)] == [Record]


def test_pipes_and_large_files_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"not a regular file.*pipe"):
        read_bytes(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 11)
    with pytest.raises(HarnessError, match="11 bytes; at most 10"):
        read_bytes(tmp_path / "large", limit=10)
