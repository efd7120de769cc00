"""The estimated cost of a sweep, from earlier cells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.records.cell import Cell
from harness.records.record import Costs, Record, write_record
from harness.sweeps.plan import SweepPlan, describe, estimates
from tests.helpers.cell_runners import make_cell

NAMES = {"task": "t", "encoder": "e", "strategy": "s"}


def past(results: Path, name: str, seconds: float, *, status: str = "complete", **more: Any) -> None:
    costs = Costs(total_seconds=seconds, peak_memory_mb=10 * seconds)
    record = Record(status=status, **NAMES, cell=name, seed=0, costs=costs, **more)
    write_record(make_cell(results, name).folder, record)


def cell(results: Path, name: str, **variant: Any) -> Cell:
    return replace(make_cell(results, name), variant={k.replace("__", "."): v for k, v in variant.items()})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    past(tmp_path, "few", 2.0, variant={"task.train_size": 30})
    past(tmp_path, "few2", 4.0, variant={"task.train_size": 30})
    past(tmp_path, "all", 30.0)
    past(tmp_path, "lost", 900.0, status="failed")
    past(tmp_path, "part", 0.1, partial=16)
    return tmp_path


def test_estimates_are_means_over_cells_of_the_same_variant(results: Path) -> None:
    estimated = estimates([results])
    assert estimated["t", "e", "s", None, frozenset({("task.train_size", "30")})].seconds == 3.0
    assert estimated["t", "e", "s", None, frozenset()].seconds == 30.0
    assert estimated["t", "e", "s", None, None].seconds == 12.0
    assert estimated["t", "e", "s", None, None].memory_mb == 300.0
    assert estimated["t", "e", "s", 16, frozenset()].seconds == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ({"task__train_size": 30}, "about 3.0 s"),
        ({}, "about 30.0 s"),
        ({"task__train_size": 100}, "about 12.0 s"),
    ],
)
def test_a_new_variant_is_estimated_from_the_others(
    results: Path, variant: dict[str, Any], expected: str
) -> None:
    new = cell(results, "new", **variant)
    lines = describe([new], SweepPlan(to_run=[new]), slots=1)
    assert f"{expected} and " in lines[0]
    assert lines[-1].startswith(expected)


def test_cells_without_an_estimate_are_counted(results: Path) -> None:
    new, other = cell(results, "new"), make_cell(results, "x", strategy={"name": "else"})
    lines = describe([new, other], SweepPlan(to_run=[new, other]), slots=2)
    assert lines[-1] == "    excludes 1 cells without an earlier run to estimate from"
    assert lines[-2].startswith("about 30.0 s on 2 slots, at most 0.3 GB")
