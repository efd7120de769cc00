"""The examples of CONTRIBUTING.md work exactly as printed, in a folder outside the checkout."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    """The text of one ``##`` section."""
    _, _, rest = GUIDE.partition(f"\n## {title}\n")
    assert rest, f"CONTRIBUTING.md has no section {title!r}"
    return rest.partition("\n## ")[0]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project folder with the package ``my_parts`` and commands ``harness`` and ``python``."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, command in (("python", sys.executable), ("harness", f"{sys.executable} -m harness")):
        (commands / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (commands / name).chmod(0o755)
    write_and_run(GUIDE.partition("\n## ")[0], tmp_path)
    return tmp_path


def follow(title: str, project: Path) -> str:
    """Follow one section of the guide, and return the output of its commands."""
    return write_and_run(section(title), project)


def write_and_run(guide: str, project: Path) -> str:
    """Write the files of a text and run its commands in order; return their output."""
    output = ""
    paths = [project, ROOT, ROOT / "tasks", ROOT / "harness" / "plugins"]
    environment = {
        **os.environ,
        "PATH": f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "HARNESS_CACHE": str(project / "cache"),
    }
    for language, name, text in FENCE.findall(guide):
        if name:
            path = project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=240, cwd=project, env=environment
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            output += done.stdout
    return output


def complete_record(project: Path) -> dict[str, object]:
    """The only record below ``results``; it is complete and has a finite score."""
    (path,) = (project / "results").rglob("record.json")
    record = json.loads(path.read_text())
    assert record["status"] == "complete"
    assert math.isfinite(record["test"][record["metric"]])
    assert isinstance(record, dict)
    return record


def test_an_encoder_family_can_be_added(project: Path) -> None:
    output = follow("Add an encoder family", project)
    assert "(2, 32)" in output
    assert complete_record(project)["encoder"] == "hashed"


def test_a_strategy_can_be_added(project: Path) -> None:
    output = follow("Add a strategy", project)
    assert "top_down" in output
    assert complete_record(project)["strategy"] == "top_down"


def test_a_task_kind_can_be_added(project: Path) -> None:
    output = follow("Add a task kind", project)
    record = complete_record(project)
    assert record["kind"] == "multi_label"
    assert "micro_f1" in output
    assert re.search(r"0\.\d+ to 0\.\d+", output), "the leaderboard shows a confidence interval"


def test_a_pretraining_objective_can_be_added(project: Path) -> None:
    output = follow("Add a pretraining objective", project)
    assert "bag_of_words (mini)" in output
    assert json.loads((project / "vectors" / "pretrain.json").read_text())["held_out"]["tokens"] > 0
    assert complete_record(project)["encoder"] == "bag_of_words"
