"""Which module may import what (docs/architecture.md): read from the source, and checked by importing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(p for top in ("harness", "tasks") for p in (ROOT / top).rglob("*.py"))
FOR_TASKS = ("harness.data", "harness.task", "harness.errors")
HEAVY = ("torch", "pytorch_lightning", "transformers", "datasets", "polars")
LIGHT = (
    "harness.cli.main", "harness.cli.run", "harness.cli.list", "harness.cli.status",
    "harness.cli.show", "harness.cli.remove", "harness.sweeps.launch", "harness.config.resolve", "harness.core.resolvers",
    "harness.core.paths", "harness.records.record", "harness.task", "harness.errors", "harness.data.text",
    "harness.leaderboard.command", "harness.leaderboard.table.board", "harness.leaderboard.render.text",
    "harness_tasks.classification.columns", "harness_tasks.classification.reader", "harness_tasks.classification.scoring",
    "harness_tasks.tagging.columns", "harness_tasks.tagging.sources", "harness_tasks.tagging.schemes", "harness_tasks.tagging.scoring",
    "harness_tasks.regression.scoring", "harness_tasks.regression.counts", "harness_tasks.classification.counts",
    "harness_tasks.tagging.counts", "harness_tasks.tagging.characters", "harness_tasks.span_qa.counts",
    "harness.ensemble", "harness.sweeps.plan", "harness.records.lease",
    "harness.config.stored", "harness.cli.rerun", "harness.cli.ensemble", "harness.data.statistics",
    "harness_tasks.span_qa.data", "harness_tasks.span_qa.reader", "harness_tasks.span_qa.scoring",
)  # fmt: skip


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a file imports, inside functions too; relative ones absolute."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    package = parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


def under(name: str, *tops: str) -> bool:
    return any(name == top or name.startswith(f"{top}.") for top in tops)


def offences(
    folder: str, *, allowed: tuple[str, ...] | None = None, banned: tuple[str, ...] = ()
) -> list[str]:
    """Imports of the files in ``folder`` that are banned or, of harness's, not allowed."""
    out = []
    for path in (p for p in SOURCES if p.is_relative_to(ROOT / folder)):
        for line, name in imported(path):
            outside = allowed is not None and under(name, "harness") and not under(name, *allowed)
            if outside or under(name, *banned):
                out.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return out


def test_tasks_import_the_task_protocol_data_and_errors_only() -> None:
    assert not offences("tasks", allowed=FOR_TASKS)


def test_harness_never_imports_tasks() -> None:
    assert not offences("harness", banned=("tasks",))


def test_the_leaderboard_imports_nothing_heavy_anywhere() -> None:
    assert not offences(
        "harness/leaderboard", banned=(*HEAVY, "harness.training.run", "harness.training.module")
    )


def test_lightning_has_one_name() -> None:
    assert not offences("harness", banned=("lightning",))
    assert not offences("tasks", banned=("lightning",))


def test_nothing_imports_the_tests() -> None:
    assert not offences("harness", banned=("tests",))
    assert not offences("tasks", banned=("tests",))


def heavy_after_import(modules: list[str]) -> dict[str, list[str]]:
    """Heavy packages by the first module whose import brought them in, in a fresh process."""
    program = (
        "import importlib, json, sys\n"
        "heavy, seen, out = set(sys.argv[1].split(',')), set(), {}\n"
        "for name in sys.argv[2].split(','):\n"
        "    importlib.import_module(name)\n"
        "    new = sorted((heavy & set(sys.modules)) - seen)\n"
        "    if new:\n"
        "        out[name] = new\n"
        "        seen |= set(new)\n"
        "print(json.dumps(out))\n"
    )
    command = [sys.executable, "-c", program, ",".join(HEAVY), ",".join(modules)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_light_modules_stay_light() -> None:
    assert heavy_after_import(list(LIGHT)) == {}


def targets(group: str, key: str) -> set[str]:
    values = (yaml.safe_load(p.read_text()).get(key) for p in (ROOT / "conf" / group).glob("*.yaml"))
    return {value for value in values if value}


@pytest.mark.parametrize("group", ["encoder", "task"])
def test_files_functions_are_found_without_torch(group: str) -> None:
    modules = sorted({target.rpartition(".")[0] for target in targets(group, "_files_")})
    assert modules
    assert heavy_after_import(modules) == {}
