"""What decides a cell's id: devices and threads, user code, hub revisions; and paths, which do not."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from harness.config import portable
from harness.config.stored import read_cell
from harness.core.fingerprint import source_files
from harness.core.paths import absolute_places
from harness.data.reading import hub
from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.inputs import verify
from harness.records.record import write_config
from tests.helpers.cells import make_cell

FULL = ("encoder=mini_bert", "strategy=full", "task=mini_topic")
NO_DROPOUT = ("encoder=mini_bert", "strategy=frozen", "task=mini_topic", "body=none", "trainer.dropout=0")


def cell(folder: Path, *overrides: str) -> Cell:
    return make_cell(folder, *overrides)


@pytest.mark.parametrize(
    ("base", "override", "variant"),
    [
        (FULL, "trainer.devices=2", {"trainer.devices": 2}),
        (FULL, "trainer.num_nodes=2", {"trainer.devices": 2}),
        ((*NO_DROPOUT[:4], "trainer.dropout=0.1"), "trainer.devices=2", {"trainer.devices": 2}),
        ((*NO_DROPOUT, "body=bilstm", "body.dropout=0.1"), "trainer.devices=2", {"trainer.devices": 2}),
        (FULL, "trainer.threads=2", {"trainer.threads": 2}),
        (FULL, "trainer.threads=1", {}),
        ((*FULL, "trainer.accelerator=cuda"), "trainer.threads=2", {}),
        (NO_DROPOUT, "trainer.devices=2", {}),
    ],
)
def test_devices_and_threads_are_part_of_the_id_if_they_can_change_the_result(
    tmp_path: Path, base: tuple[str, ...], override: str, variant: dict[str, int]
) -> None:
    """Dropout masks depend on the number of devices, rounding on the CPU on the number of threads."""
    reference, other = cell(tmp_path, *base), cell(tmp_path, *base, override)
    assert (reference.id != other.id) is bool(variant)
    hardware = {k: v for k, v in other.variant.items() if k in ("trainer.devices", "trainer.threads")}
    assert hardware == variant


def test_threads_are_counted_per_device(tmp_path: Path) -> None:
    two_devices = cell(tmp_path, *FULL, "trainer.devices=2")
    assert cell(tmp_path, *FULL, "trainer.devices=2", "trainer.threads=2").id == two_devices.id


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the user with a body, in a folder that is importable."""
    folder = tmp_path / "user_parts"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "helpers.py").write_text("SCALE = 1\n")
    (folder / "body.py").write_text("from harness.bodies.none import *\nfrom .helpers import SCALE\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return folder


def test_id_depends_on_the_source_of_user_code(tmp_path: Path, package: Path) -> None:
    """Of the whole package, since the component may import any of it; a change before the run is refused."""
    over = (*FULL, "body=bilstm", "body._target_=user_parts.body.NoBody")
    before = cell(tmp_path, *over)
    assert cell(tmp_path, *over).id == before.id
    verify(before)
    (package / "helpers.py").write_text("SCALE = 2\n")
    assert cell(tmp_path, *over).id != before.id
    with pytest.raises(HarnessError, match="the code's files have changed"):
        verify(before)
    assert "code" not in cell(tmp_path, *FULL).files


def test_source_files_imports_nothing_and_skips_this_program(tmp_path: Path, package: Path) -> None:
    (package / "__init__.py").write_text("raise RuntimeError\n")
    assert set(source_files(["user_parts.body.NoBody"])) == {
        "user_parts/__init__.py",
        "user_parts/body.py",
        "user_parts/helpers.py",
    }
    assert source_files(["harness.bodies.none.NoBody", "harness_tasks.x", "", "no_such_package.x"]) == {}
    installed = source_files(["torch.nn.modules.rnn.LSTM"])
    assert "torch/nn/modules/rnn.py" in installed
    assert len(installed) < 10


def test_id_depends_on_the_revision_of_a_hub_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is stored, so that the cell reads the same data when it runs again."""
    commits: dict[str, Any] = {}
    monkeypatch.setattr(portable, "resolve_revision", lambda name, revision: commits.get(name))
    over = ("encoder=mini_static", "strategy=frozen", "task=text_classification", "task.hub=owner/data")
    over = (*over, "task.text=text")  # resolving it loads nothing
    unknown = cell(tmp_path, *over)
    commits["owner/data"] = "a" * 40
    first = cell(tmp_path, *over)
    commits["owner/data"] = "b" * 40
    second = cell(tmp_path, *over)
    assert len({unknown.id, first.id, second.id}) == 3
    assert first.task.options["hub"] == {"id": "owner/data", "revision": "a" * 40}


def test_revision_of_the_local_copy_without_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    class Offline:
        def dataset_info(self, *args: object, **kwargs: object) -> None:
            raise ConnectionError

    monkeypatch.setattr(huggingface_hub, "HfApi", Offline)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    hub.resolve_revision.cache_clear()
    assert hub.resolve_revision("owner/gone", None) is None
    refs = tmp_path / "datasets--owner--data" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("c" * 40)
    assert hub.resolve_revision("owner/data", None) == "c" * 40
    assert hub.resolve_revision("owner/data", "d" * 40) == "d" * 40
    hub.resolve_revision.cache_clear()


def test_stored_cell_resolves_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "good,pos\nbad,neg\n" * 3)
    files = [f"task.{name}={name}.csv" for name in ("train", "dev", "test")]
    before = cell(
        tmp_path, "encoder=mini_static", "strategy=frozen", "task=text_classification", "task.name=x", *files
    )
    before.folder.mkdir(parents=True)
    write_config(before.folder, before.resolved)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert read_cell(before.folder).id == before.id


def test_absolute_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing files, patterns and members' paths; not hub names, missing files, URLs or `none`."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "none", "vectors"):
        (tmp_path / name).touch()
    section = {
        "path": "vectors",
        "train": ["a.csv", "*.csv"],
        "dev": "none",
        "files": {"weights": "vectors", "options": None},
        "url": "https://example.org/vectors",
        "name": "vectors",
        "members": {"first": {"path": "vectors"}, "second": None, "third": {"path": "owner/model"}},
    }
    assert absolute_places(section, ("path", "train", "dev", "files", "url")) == {
        **section,
        "path": str(tmp_path / "vectors"),
        "train": [str(tmp_path / "a.csv"), str(tmp_path / "*.csv")],
        "files": {"weights": str(tmp_path / "vectors"), "options": None},
        "members": {
            "first": {"path": str(tmp_path / "vectors")},
            "second": None,
            "third": {"path": "owner/model"},
        },
    }


@pytest.mark.parametrize(
    ("header", "options", "same"),
    [
        ("text,label", ["task.text=text"], True),
        (
            "text,label",
            ["task.text=text", "task.label=label", "task.format=csv", "task.encoding=utf-8"],
            True,
        ),
        ("text,other,label", ["task.text=text"], True),
        ("text,other,label", ["task.text=other"], False),
    ],
)
def test_columns_have_one_id_whether_named_or_recognised(
    tmp_path: Path, header: str, options: list[str], same: bool
) -> None:
    files = []
    for name in ("train", "dev", "test"):
        rows = [["text", "other", "label"]]
        for i in range(8):
            rows.append([f"{name} text {i}", f"{name} other {i}", "pn"[i % 2]])
        columns = [0, 1, 2] if "other" in header else [0, 2]
        text = "\n".join(",".join(row[c] for c in columns) for row in rows)
        (tmp_path / f"{name}.csv").write_text(f"{text}\n")
        files.append(f"task.{name}={tmp_path / name}.csv")
    base = ["encoder=mini_static", "strategy=frozen", "task=text_classification", "task.name=x", *files]
    recognised, named = cell(tmp_path, *base), cell(tmp_path, *base, *options)
    assert (recognised.id == named.id) is same
    assert (recognised.variant == named.variant) is same
