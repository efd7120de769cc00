"""The import order of the packages (docs/architecture.md): read from the source, and checked by importing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from benchmarks.code_structure import cycles, import_graph, sources
from tests.helpers.paths import PYTHONPATH, ROOT

LAYERS = (
    "errors", "core", "data", "task", "encoders", "strategies", "bodies", "records", "config", "processes",
    "loggers", "ensemble", "pretraining", "adaptation", "training", "sweeps", "cli",
)  # fmt: skip
"""Packages and root modules of ``harness``: each imports only from itself and from what is to its left."""
LEADERBOARD = ("errors", "core", "records", "data.statistics", "data.reading.card", "leaderboard")
"""What the leaderboard may import of ``harness``; only ``cli`` imports the leaderboard."""
TASKS = ("errors", "task", "data")
"""What tasks may import of ``harness``."""
TOP = ("__init__", "__main__", "plugins")
"""The public entry points may import anything."""
MAX_MODULES = 12

HEAVY = ("torch", "pytorch_lightning", "transformers", "datasets", "pandas")
LIGHT_PACKAGES = ("core", "strategies", "records", "config", "sweeps", "leaderboard", "cli")
LIGHT_MODULES = (
    "harness.errors", "harness.task", "harness.ensemble", "harness.data.text", "harness.data.reading.files",
    "harness.data.reading.card", "harness.data.reading.tables", "harness.data.splits",
    "harness.data.statistics", "harness.data.windows",
    "harness.data.targets", "harness.loggers.factory", "harness.processes.slots", "harness.processes.worker",
)  # fmt: skip
"""With all of LIGHT_PACKAGES and the tasks (their heads and live metrics apart): importable without torch."""
HEAVY_FILES = ("head.py", "heads.py", "pooling.py", "live_metrics.py", "zoo.py")


def package(module: str) -> str:
    """The package or root module of ``harness`` that a dotted name lies in: ``harness.data.text`` -> data."""
    return module.split(".")[1]


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a file imports, inside functions and for type checking as well."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def harness_imports(folder: str) -> list[tuple[str, str, str]]:
    """Place, package of the importing file and dotted name of each import of ``harness``."""
    return [
        (
            f"{path.relative_to(ROOT)}:{line}",
            path.relative_to(ROOT / folder).parts[0].removesuffix(".py"),
            name,
        )
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in imports_of(path)
        if name.startswith("harness.")
    ]


def is_below(name: str, packages: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"harness.{allowed}.") for allowed in packages)


def test_every_package_is_in_the_table_of_layers() -> None:
    names = {
        p.stem for p in (ROOT / "harness").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert names - {*TOP} == {*LAYERS, "leaderboard"}


def test_no_package_imports_from_a_layer_to_its_right() -> None:
    offences = [
        f"{place} imports {name}"
        for place, importer, name in harness_imports("harness")
        if importer in LAYERS
        and package(name) in LAYERS
        and LAYERS.index(package(name)) > LAYERS.index(importer)
    ]
    assert not offences, "\n".join(offences)


def test_the_leaderboard_stands_apart() -> None:
    offences = [
        f"{place} imports {name}"
        for place, importer, name in harness_imports("harness")
        if (importer == "leaderboard" and not is_below(name, LEADERBOARD))
        or (importer not in ("leaderboard", "cli", *TOP) and package(name) == "leaderboard")
    ]
    assert not offences, "\n".join(offences)


def test_tasks_import_the_task_protocol_data_and_errors_only() -> None:
    found = [
        f"{place} imports {name}" for place, _, name in harness_imports("tasks") if not is_below(name, TASKS)
    ]
    assert not found, "\n".join(found)


def test_the_harness_imports_neither_tasks_nor_tests_nor_lightning_by_its_other_name() -> None:
    banned = ("harness_tasks", "tests", "benchmarks", "lightning")
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for folder in ("harness", "tasks")
        for path in (ROOT / folder).rglob("*.py")
        for line, name in imports_of(path)
        if name.split(".")[0] in banned and not (folder == "tasks" and name.startswith("harness_tasks"))
    ]
    assert not found, "\n".join(found)


def test_there_are_no_import_cycles() -> None:
    paths = sources([ROOT / "harness", ROOT / "tasks"])
    assert cycles(import_graph(paths)) == []


def test_no_folder_holds_more_modules_than_a_reader_can_take_in() -> None:
    folders = Counter(
        p.parent for p in sources([ROOT / "harness", ROOT / "tasks"]) if p.name != "__init__.py"
    )
    assert {str(f.relative_to(ROOT)): n for f, n in folders.items() if n > MAX_MODULES} == {}


def modules_below(folder: Path, root: Path) -> list[str]:
    paths = [
        p for p in sorted(folder.rglob("*.py")) if p.name not in ("__init__.py", "__main__.py", *HEAVY_FILES)
    ]
    return [".".join(p.relative_to(root).with_suffix("").parts) for p in paths]


def heavy_after_import(modules: list[str]) -> dict[str, list[str]]:
    """Heavy packages by the first module whose import loaded them, in a fresh process."""
    program = (
        "import importlib, json, sys\n"
        "heavy, seen, loaded = set(sys.argv[1].split(',')), set(), {}\n"
        "for name in sys.argv[2].split(','):\n"
        "    importlib.import_module(name)\n"
        "    new = sorted((heavy & set(sys.modules)) - seen)\n"
        "    if new:\n"
        "        loaded[name] = new\n"
        "        seen |= set(new)\n"
        "print(json.dumps(loaded))\n"
    )
    command = [sys.executable, "-c", program, ",".join(HEAVY), ",".join(modules)]
    environment = {"PYTHONPATH": PYTHONPATH, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert isinstance(loaded, dict)
    return loaded


def test_the_driver_side_is_free_of_torch() -> None:
    """A sweep resolves hundreds of cells, and the leaderboard reads thousands of records, without torch."""
    modules = [*LIGHT_MODULES]
    for name in LIGHT_PACKAGES:
        modules += modules_below(ROOT / "harness" / name, ROOT)
    modules += modules_below(ROOT / "tasks" / "harness_tasks", ROOT / "tasks")
    assert heavy_after_import(modules) == {}


@pytest.mark.parametrize("group", ["encoder", "task"])
def test_functions_that_find_files_are_free_of_torch(group: str) -> None:
    configs = [yaml.safe_load(p.read_text()) for p in (ROOT / "conf" / group).glob("*.yaml")]
    targets = {config["_files_"] for config in configs if config.get("_files_")}
    assert targets
    assert heavy_after_import(sorted({target.rpartition(".")[0] for target in targets})) == {}
