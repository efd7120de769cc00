"""The wheel holds everything and works from any folder, also from one with look-alikes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DATA = (
    "corpus.txt", "vectors.txt.gz", "topic/train.csv", "ner/dev.txt", "qa/test.json",
    "bert/model.safetensors", "bert/tokenizer.json", "gpt/config.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel, and nothing else, was installed."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*command, "--no-deps", "--target", str(target), str(wheel)], check=True, timeout=120)
    return target


@pytest.fixture
def run(site: Path, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Runs the installed command in a folder that holds look-alikes of our own packages and configuration."""
    for name in ("tasks.py", "harness.py", "hydra_plugins.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module was imported')\n")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("wrong: true\n")

    def call(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(site), "HARNESS_CACHE": str(tmp_path / "cache")}
        command = [sys.executable, str(site / "bin" / "harness"), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


def test_the_wheel_holds_configuration_tasks_launcher_and_demo(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        demo = sum(i.file_size for i in file.infolist() if i.filename.startswith("tasks/mini/"))
    here = {f"harness/{p.relative_to(ROOT)}" for p in (ROOT / "conf").rglob("*.yaml")}
    assets = ROOT / "harness" / "leaderboard"
    here |= {str(p.relative_to(ROOT)) for p in [*assets.glob("assets/*"), assets / "papers.json"]}
    assert len([name for name in here if name.startswith("harness/leaderboard/assets/")]) >= 7
    assert here <= names
    assert {f"tasks/mini/{name}" for name in DATA} <= names
    assert {"hydra_plugins/harness_local.py", "tasks/classification/task.py", "tasks/__init__.py"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [
        n for n in names if n.startswith(("harness/plugins/", "tests/", "conf/")) or "__pycache__" in n
    ]
    assert demo < 16_000_000


def test_it_works_in_a_folder_of_look_alikes(run) -> None:  # type: ignore[no-untyped-def]
    assert "leaderboard" in run("--help")
    assert "demo_bert" in run("list", "encoders")
    assert "demo_topic" in run("list", "tasks")


def test_a_demo_cell_runs_from_the_wheel(run, site: Path) -> None:  # type: ignore[no-untyped-def]
    out = run("debug=fast", "task=demo_topic", "encoder=demo_static", "strategy=frozen", "trainer.threads=1")
    assert "1 complete" in out
    assert str(site) in run("--cfg", "job", "--resolve", "task=demo_topic")
    assert "PARTIAL: demo_topic" in run("leaderboard", "--partial")
