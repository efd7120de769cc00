"""The bundled encoders are what their manifest says: files, precision, commands; and each can be used."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harness
from harness.core.paths import mini_dir
from harness_tasks.mini import zoo
from tests.helpers import tiny_corpus

FOLDER = mini_dir() / "zoo"
NAMES = ("mini_static", "mini_elmo", "mini_ulmfit", "mini_ulmfit_bi", "mini_bert", "mini_gpt")
BOTH = ("forward", "backward")
PLACE = re.compile(
    rb"(?:/(?:home|root|tmp|work|usr|opt|mnt|data|var|Users)/|[A-Za-z]:\\\\|file://|localhost|\b127\.0\.0\.1\b)"
    rb"|\"(?:host|hostname|user|cwd|device_name)\""
)
"""What would tell where the files were made."""


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "manifest.json").read_text()))


def shipped() -> list[Path]:
    return sorted(p for p in FOLDER.rglob("*") if p.is_file())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_file_is_in_the_manifest_and_no_other(manifest: dict[str, Any]) -> None:
    told = {f"{name}/{file}": d for name, e in manifest["encoders"].items() for file, d in e["files"].items()}
    there = {p.relative_to(FOLDER).as_posix(): digest(p) for p in shipped() if p.name != "manifest.json"}
    assert there == told
    assert sum(p.stat().st_size for p in shipped()) <= 12_000_000


def test_they_were_made_of_the_bundled_corpus_by_the_commands_of_the_script(manifest: dict[str, Any]) -> None:
    text = gzip.decompress(zoo.CORPUS.read_bytes())  # the bytes of a gzip file depend on the compressor
    assert manifest["corpus"] == hashlib.sha256(text).hexdigest()
    commands = {m.name: " ".join(["harness", *m.command(zoo.CORPUS.name, m.name)]) for m in zoo.ZOO}
    assert {name: e["command"] for name, e in manifest["encoders"].items()} == commands
    for name, entry in manifest["encoders"].items():
        assert entry["seen"]["tokens"] > 1_000_000, name
        assert entry["encoder_parameters"] > 100_000, name


def half_precision(path: Path) -> bool:
    """Whether every array of floats in a file of weights takes two bytes a number."""
    if path.suffix == ".hdf5":
        import h5py

        kinds: list[np.dtype[Any]] = []
        with h5py.File(path) as file:
            file.visititems(lambda _, item: kinds.append(item.dtype) if hasattr(item, "dtype") else None)
    else:
        from safetensors import safe_open

        with safe_open(path, framework="np") as read:
            kinds = [read.get_tensor(key).dtype for key in read.keys()]  # noqa: SIM118
    return bool(kinds) and all(kind == np.float16 for kind in kinds if kind.kind == "f")


def test_all_weights_are_in_half_precision() -> None:
    weights = [p for p in shipped() if p.suffix in (".safetensors", ".hdf5")]
    assert len(weights) == 5
    assert all(half_precision(p) for p in weights), weights


def test_the_table_of_words_is_written_with_four_digits() -> None:
    lines = gzip.decompress((FOLDER / "static" / "vectors.txt.gz").read_bytes()).decode().splitlines()
    count, width = map(int, lines[0].split())
    assert len(lines) == count + 1
    rows = [line.split(" ")[1:] for line in lines[1:]]
    assert {len(row) for row in rows} == {width}
    assert max(len(re.sub(r"e.*$|[-+.]", "", number).lstrip("0")) for row in rows for number in row) <= 4


def test_no_file_tells_where_it_was_made(manifest: dict[str, Any]) -> None:
    for path in shipped():
        data = path.read_bytes()
        found = PLACE.search(gzip.decompress(data) if path.suffix == ".gz" else data)
        assert found is None, (path, found)
    assert not {"device", "host", "cpu", "argv"} & {key for e in manifest["encoders"].values() for key in e}


@pytest.mark.parametrize("name", NAMES)
def test_each_encodes_a_sentence(name: str, tmp_path: Path, manifest: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    encoder = harness.load_encoder(name, cache_dir=tmp_path)
    names = {"ulmfit": ["ulmfit/forward"], "ulmfit_bi": [f"ulmfit/{way}" for way in BOTH]}
    kind = name.removeprefix("mini_")
    told = sum(manifest["encoders"][n]["encoder_parameters"] for n in names.get(kind, [kind]))
    held = sum(p.numel() for p in encoder.parameters())
    assert told <= held <= 1.01 * told, "the same but for rows of tokens that pretraining did not need"
    one, other = encoder.encode(["The mistap gundunded the rinens .", "Kuden vents in May ."])
    assert (one.shape, other.shape) == ((6, encoder.hidden_size), (5, encoder.hidden_size))
    for states in (one, other):
        assert states.dtype == np.float32
        assert np.isfinite(states).all()
        assert np.linalg.norm(states, axis=1).min() > 0
    assert not np.allclose(one[0], one[1])


def test_both_directions_of_the_awd_lstm_are_there() -> None:
    told = [json.loads((FOLDER / "ulmfit" / way / "options.json").read_text()) for way in BOTH]
    assert [options["backwards"] for options in told] == [False, True]
    words = [(FOLDER / "ulmfit" / way / "vocabulary.json").read_bytes() for way in BOTH]
    assert words[0] == words[1]


def test_a_zoo_of_tiny_members_is_made_and_described(tmp_path: Path) -> None:
    corpus = tiny_corpus.write(tmp_path)
    quick = {
        "static": ("encoder=word2vec", *tiny_corpus.ALL["word2vec"], "budget.epochs=2"),
        "gpt": ("encoder=gpt", *tiny_corpus.ALL["gpt"], "budget.steps=2"),
    }
    members = [zoo.ZooMember(name, options) for name, options in quick.items()]
    zoo.make(tmp_path / "zoo", members, corpus=corpus)
    made = json.loads((tmp_path / "zoo" / "manifest.json").read_text())
    assert made["corpus"] == digest(corpus)
    assert list(made["encoders"]) == list(quick)
    for name, entry in made["encoders"].items():
        folder = tmp_path / "zoo" / name
        assert {p.name: digest(p) for p in folder.iterdir()} == entry["files"]
        assert not set(zoo.LEFT_OUT) & set(entry["files"])
        assert str(tmp_path) not in json.dumps(entry)
        assert entry["command"].endswith("trainer.logger=none")
    assert half_precision(tmp_path / "zoo" / "gpt" / "model.safetensors")
    # one of them again, over what is there
    zoo.make(tmp_path / "zoo", members[-1:], corpus=corpus)
    again = json.loads((tmp_path / "zoo" / "manifest.json").read_text())
    assert {n: e["files"] for n, e in again["encoders"].items()} == {
        n: e["files"] for n, e in made["encoders"].items()
    }
    assert {p.name for p in (tmp_path / "zoo").iterdir()} == {*quick, "manifest.json"}
