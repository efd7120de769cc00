"""A component is checked from its source: the callable exists, takes the options, and lacks none."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.instantiate import check_files, check_options, parameters_of
from harness.errors import HarnessError

SOURCE = """
from own_parts.other import build
class Table:
    def __init__(self, *, name, path, dim=3): raise SystemExit
def load(*, name, path, size, lower=True, random_init, cache_dir): raise SystemExit
def anything(**options): raise SystemExit
made = load
"""


@pytest.fixture(autouse=True)
def own_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that must not be executed."""
    folder = tmp_path / "own_parts"
    folder.mkdir()
    files = {"__init__": "", "parts": SOURCE, "other": "def build(name, size): ...", "broken": "def load(:\n"}
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "compiled.cpython-311.so").touch()
    monkeypatch.syspath_prepend(tmp_path)
    parameters_of.cache_clear()


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("", r"encoder\._target_ is missing"),
        ("own_part.parts.load", r"encoder\._target_=own_part\.parts\.load: there is no module own_part;"),
        ("load", r"there is no module load;"),
        ("own_parts.part.load", r"there is no module own_parts\.part, did you mean parts\?"),
        ("own_parts.parts.laod", r"parts\.py does not define laod, did you mean load\?"),
        ("own_parts.broken.load", r"broken\.py:1: not valid Python"),
        ("own_parts.parts.load", r"encoder\.size is missing: own_parts\.parts\.load requires it"),
        (
            "own_parts.parts.build",
            r"encoder\.path: unknown key, did you mean|encoder\.path: unknown key, valid: ",
        ),
    ],
)
def test_a_wrong_target_is_refused_with_a_suggestion(target: str, problem: str) -> None:
    with pytest.raises(HarnessError, match=problem):
        check_options(target, {"path": "x"}, key="encoder", reserved=("random_init", "cache_dir"))


@pytest.mark.parametrize(
    "target", ["Table", "anything", "made"], ids=["class", "any option", "assigned: undetermined"]
)
def test_what_is_right_or_cannot_be_determined_is_accepted(target: str) -> None:
    check_options(f"own_parts.parts.{target}", {"path": "x"}, key="encoder")
    check_options("own_parts.compiled.load", {"path": "x"}, key="encoder")


def test_a_file_that_would_not_be_part_of_the_cell_id_is_refused() -> None:
    check_files("own_parts.parts.made", {"path": "x"}, key="encoder")
    check_files("", {"path": None, "dev": "none", "size": 3}, key="task")
    with pytest.raises(HarnessError, match=r"^encoder\._files_=.* does not define files"):
        check_files("own_parts.parts.files", {"path": "x"}, key="encoder")
    with pytest.raises(HarnessError, match=r"^encoder\.path=x: encoder\._files_ is missing"):
        check_files("", {"path": "x"}, key="encoder")
