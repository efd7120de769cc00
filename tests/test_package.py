"""The wheel is complete and works in any folder, even one that shadows the names of its modules."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MINI = ROOT / "tasks" / "harness_tasks" / "mini"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which only the wheel is installed."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*command, "--no-deps", "--target", str(target), str(wheel)], check=True, timeout=120)
    return target


@pytest.fixture
def run(site: Path, tmp_path: Path) -> Callable[..., str]:
    """Run the installed command in a folder that shadows the names of our packages and configuration."""
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


def bundled_files() -> set[str]:
    """Data, checkpoints and their manifests in the repository, as paths relative to it."""
    paths = [p for part in ("world/data", "zoo") for p in (MINI / part).rglob("*") if p.is_file()]
    assert len(paths) > 30
    assert {MINI / "zoo" / "manifest.json", MINI / "world" / "data" / "manifest.json"} <= set(paths)
    return {p.relative_to(ROOT).as_posix() for p in paths}


def test_the_sdist_contains_the_mini_world(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--sdist",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert bundled_files() | {"tasks/harness_tasks/mini/zoo.py", "conf/encoder/mini_bert.yaml"} <= names
    assert {"CHANGELOG.md", "CITATION.cff", "mkdocs.yml", "docs/index.md"} <= names


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def test_the_wheel_marks_its_packages_as_typed(wheel_names: set[str]) -> None:
    assert {"harness/py.typed", "harness_tasks/py.typed"} <= wheel_names


def test_the_wheel_has_three_top_level_packages(wheel_names: set[str]) -> None:
    """Benchmarks, tests, documentation and the configuration's source folder are not installed."""
    top = {name.partition("/")[0] for name in wheel_names}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        "harness",
        "harness_tasks",
        "hydra_plugins",
    }


def test_the_wheel_contains_configuration_tasks_launcher_and_the_mini_world(
    wheel: Path, wheel_names: set[str]
) -> None:
    names = wheel_names
    with zipfile.ZipFile(wheel) as file:
        mini = sum(i.file_size for i in file.infolist() if i.filename.startswith("harness_tasks/mini/"))
    data_files = {f"harness/{p.relative_to(ROOT)}" for p in (ROOT / "conf").rglob("*.yaml")}
    board = ROOT / "harness" / "leaderboard"
    data_files |= {str(p.relative_to(ROOT)) for p in [*board.glob("html/assets/*"), board / "papers.json"]}
    assert len([name for name in data_files if name.startswith("harness/leaderboard/html/assets/")]) >= 7
    assert data_files <= names
    assert {name.removeprefix("tasks/") for name in bundled_files()} <= names
    assert {
        "hydra_plugins/harness_local.py",
        "harness_tasks/classification/task.py",
        "harness_tasks/__init__.py",
    } <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [
        n for n in names if n.startswith(("harness/plugins/", "tests/", "conf/")) or "__pycache__" in n
    ]
    assert mini < 16_000_000


def test_commands_work_in_a_folder_that_shadows_our_names(run: Callable[..., str]) -> None:
    assert "leaderboard" in run("--help")
    assert "mini_bert" in run("list", "encoders")
    assert "mini_topic" in run("list", "tasks")


def test_cells_of_the_mini_world_run_from_the_wheel(run: Callable[..., str], site: Path) -> None:
    cells = ("task=mini_topic", "encoder=mini_static,mini_bert", "strategy=frozen", "trainer.threads=1")
    assert "2 complete" in run("-m", "debug=fast", *cells)
    assert str(site) in run("--cfg", "job", "--resolve", "task=mini_topic")
    assert "PARTIAL: mini_topic" in run("leaderboard", "--partial")


def test_the_zoo_module_is_importable_next_to_the_zoo_folder(site: Path, tmp_path: Path) -> None:
    """``harness_tasks.mini.zoo`` is the module although there is a folder of the same name."""
    code = (
        "from harness_tasks.mini import zoo as z;"
        "print(z.__file__, z.CORPUS.is_file(), (z.HERE / 'zoo').is_dir())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    assert done.stdout.split() == [str(site / "harness_tasks" / "mini" / "zoo.py"), "True", "True"], (
        done.stderr
    )
