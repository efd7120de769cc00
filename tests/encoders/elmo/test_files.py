"""ELMo's published files: lookup, checks, writing; and ELMo in cells."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import harness
from harness.bodies.bilstm import BiLSTM
from harness.config.resolve import prepare
from harness.data.tokens import EncoderOutput, TokenBatch, TokenizedWindow
from harness.encoders.config import MixOptions
from harness.encoders.elmo.encoder import load
from harness.encoders.elmo.files import elmo_files, read_options
from harness.encoders.elmo.weights import check_elmo, read_weights, write_weights
from harness.encoders.scalar_mix import ScalarMix
from harness.errors import HarnessError
from harness.training.run import run_cell
from tests.helpers.cells import composed, make_cell
from tests.helpers.tiny_elmo import TINY, elmo_folder, make_elmo, random_weights

torch.set_num_threads(1)
QUICK = ["limit=12", "trainer.epochs=1", "trainer.batch_size=6", "trainer.threads=1"]


def test_a_folder_holds_options_and_weights(tmp_path: Path) -> None:
    folder = make_elmo(tmp_path / "a")
    assert elmo_files({"path": folder}, tmp_path) == {
        "options": folder / "options.json",
        "weights": folder / "weights.hdf5",
    }
    (folder / "options.json").rename(folder / "elmo_tiny_options.json")
    (folder / "weights.hdf5").rename(folder / "elmo_tiny_weights.hdf5")
    files = elmo_files({"path": folder}, tmp_path)
    assert files["options"].name == "elmo_tiny_options.json"
    assert load(name="tiny", path=folder, cache_dir=tmp_path).hidden_size == 16
    apart = elmo_files({"files": {"options": files["options"], "weights": files["weights"]}}, tmp_path)
    assert apart == files


def test_folders_without_a_model(tmp_path: Path) -> None:
    folder = make_elmo(tmp_path / "a")
    with pytest.raises(HarnessError, match=r"does not exist: expected a folder"):
        elmo_files({"path": tmp_path / "b"}, tmp_path)
    with pytest.raises(HarnessError, match=r"is a file: expected a folder"):
        elmo_files({"path": folder / "options.json"}, tmp_path)
    with pytest.raises(HarnessError, match=r"not on this machine; set encoder\.path=FOLDER"):
        elmo_files({"name": "elmo"}, tmp_path)
    with pytest.raises(HarnessError, match=r"encoder.files=.*expected"):
        elmo_files({"files": {"weight": "x"}}, tmp_path)
    (folder / "more_weights.hdf5").write_bytes(b"")
    with pytest.raises(HarnessError, match=r"several \*weights\*.hdf5 \(more_weights.hdf5, weights.hdf5\)"):
        elmo_files({"path": folder}, tmp_path)
    given = {"path": folder, "files": {"weights": folder / "weights.hdf5"}}
    assert elmo_files(given, tmp_path)["weights"].name == "weights.hdf5"
    for path in folder.glob("*.hdf5"):
        path.unlink()
    with pytest.raises(HarnessError, match=r"contains no \*weights\*.hdf5 \(but options.json\)"):
        elmo_files({"path": folder}, tmp_path)


def changed(section: str, key: str, value: Any) -> Callable[[dict], None]:
    def change(data: dict) -> None:
        if value is None:
            del data[section][key]
        else:
            data[section][key] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("lstm"), "lstm is missing"),
        (changed("lstm", "dim", None), "lstm.dim is missing: expected an integer"),
        (changed("lstm", "dim", "64"), "lstm.dim is '64'"),
        (changed("lstm", "use_skip_connections", None), "use_skip_connections=None: expected true or false"),
        (changed("lstm", "cell_clip", -3), "lstm.cell_clip=-3"),
        (changed("char_cnn", "n_characters", 300), "n_characters=300: expected 261 or 262"),
        (changed("char_cnn", "activation", "gelu"), "activation='gelu': expected relu or tanh"),
        (changed("char_cnn", "filters", [[1]]), "filters=.*pairs"),
        (changed("char_cnn", "filters", [[51, 4]]), "width 51 exceeds"),
        (changed("char_cnn", "embedding", {}), "char_cnn.embedding.dim is missing"),
    ],
)
def test_invalid_options(tmp_path: Path, change: Any, message: str) -> None:
    path = make_elmo(tmp_path) / "options.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(HarnessError, match=message) as e:
        read_options(path)
    assert str(path) in str(e.value)


def test_options_are_read(tmp_path: Path) -> None:
    path = make_elmo(tmp_path, use_skip_connections=False, cell_clip=None) / "options.json"
    options = read_options(path)
    assert (options.use_skip_connections, options.cell_clip, options.dropout) == (False, None, 0.1)
    path.write_text("{")
    with pytest.raises(HarnessError, match="cannot be read as JSON"):
        read_options(path)


def test_mismatched_weights(tmp_path: Path) -> None:
    path = make_elmo(tmp_path) / "weights.hdf5"
    with h5py.File(path, "a") as file:
        del file["CNN/b_cnn_1"]
    with pytest.raises(HarnessError, match=r"weights.hdf5: CNN/b_cnn_1 of shape \(5,\) is missing"):
        read_weights(path, TINY)
    with h5py.File(path, "a") as file:
        file["CNN/b_cnn_1"] = np.zeros(4, np.float32)
    with pytest.raises(
        HarnessError, match=r"CNN/b_cnn_1 has shape \(4,\), expected \(5,\) from options\.json"
    ):
        read_weights(path, TINY)
    with h5py.File(path, "a") as file:
        del file["CNN/b_cnn_1"]
        file["CNN/b_cnn_1"] = np.zeros(5, np.int32)
    with pytest.raises(HarnessError, match=r"CNN/b_cnn_1 contains int32"):
        read_weights(path, TINY)
    path.write_text("no HDF5")
    with pytest.raises(HarnessError, match="cannot be read as HDF5"):
        read_weights(path, TINY)
    with pytest.raises(HarnessError, match="CNN/W_cnn_0 has shape none"):
        write_weights(tmp_path, TINY, {"char_embed": np.zeros((261, 4))})


def test_padding_row_and_other_precisions_are_read(tmp_path: Path) -> None:
    weights = random_weights(TINY)
    path = make_elmo(tmp_path) / "weights.hdf5"
    with h5py.File(path, "a") as file:
        del file["char_embed"], file["CNN/b_cnn_0"]
        file["char_embed"] = np.concatenate([np.zeros((1, 4), np.float32), weights["char_embed"]])
        file["CNN/b_cnn_0"] = weights["CNN/b_cnn_0"].astype(np.float64)
    read = read_weights(path, TINY)
    assert {v.dtype for v in read.values()} == {np.dtype(np.float32)}
    for key, value in read.items():
        np.testing.assert_array_equal(value, weights[key])


def test_model_without_a_projection(tmp_path: Path) -> None:
    """If filters and projection have the same width, the original implementation has no projection."""
    from dataclasses import replace

    options = replace(TINY, filters=((1, 3), (2, 5)))
    weights = {k: v for k, v in random_weights(options).items() if not k.startswith("CNN_proj")}
    write_weights(tmp_path, options, weights)
    encoder = load(name="t", path=tmp_path, cache_dir=tmp_path).eval()
    assert encoder.characters.projection is None
    assert encoder.encode([["a", "b"]])[0].shape == (2, 16)


def test_stateful_needs_a_stateful_encoder(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="has no state"):
        harness.load_encoder("mini_static", stateful=True, cache_dir=tmp_path)
    with pytest.raises(HarnessError, match=r"encoder.dropout=1.5"):
        harness.load_encoder("elmo", path=elmo_folder(), cache_dir=tmp_path, dropout=1.5)


def test_cell_id_depends_on_file_contents_only(tmp_path: Path) -> None:
    same = [make_elmo(tmp_path / n) for n in "ab"]
    other = make_elmo(tmp_path / "c", use_skip_connections=False)
    cells = [
        make_cell(tmp_path, "encoder=elmo", f"encoder.path={p}", "strategy=frozen") for p in (*same, other)
    ]
    apart = [f"encoder.files.options={same[0]}/options.json", f"encoder.files.weights={same[0]}/weights.hdf5"]
    cells.append(make_cell(tmp_path, "encoder=elmo", *apart, "strategy=frozen"))
    assert cells[0].id == cells[1].id == cells[3].id != cells[2].id


def test_default_layers_depend_on_the_strategy(tmp_path: Path) -> None:
    base = ["encoder=elmo", f"encoder.path={elmo_folder()}"]
    layers = {}
    for strategy in ("scratch", "frozen", "embedding_init", "slow_embedding", "full"):
        cell = make_cell(tmp_path, *base, f"strategy={strategy}")
        assert cell.skip is None
        layers[strategy] = (cell.encoder.layers, cell.encoder.mix)
    mixed = ("mix", MixOptions(l2=0.001))
    assert layers == {
        "scratch": mixed,
        "frozen": mixed,
        "full": mixed,
        "embedding_init": ("top", None),
        "slow_embedding": ("top", None),
    }
    default, named, top = (
        make_cell(tmp_path, *base, "strategy=frozen", *more).id
        for more in (
            [],
            ["encoder.layers=mix", "body=bilstm", "body.hidden_size=64", "body.features=before"],
            ["encoder.layers=top"],
        )
    )
    assert default == named != top
    after = make_cell(
        tmp_path, *base, "strategy=frozen", "body=bilstm", "body.features=after", "encoder.layers=top"
    )
    assert "body.features=after" in str(after.skip)
    with pytest.raises(HarnessError, match=r"encoder.mix.l3: unknown key"):
        prepare(composed(*base, "+encoder.mix.l3=1"))


def test_scalar_mix_layer_norm_and_regulariser() -> None:
    mix = ScalarMix(3, layer_norm=True, l2=0.5)
    layers = torch.randn(3, 2, 4, 8) * torch.tensor([1.0, 10.0, 100.0]).view(3, 1, 1, 1)
    expected = torch.stack(
        [(x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0) for x in layers]
    )
    torch.testing.assert_close(mix(layers), expected.mean(0), atol=1e-3, rtol=1e-3)
    mix.pull()  # no gradient yet: no-op
    mix.scalars.data = torch.tensor([1.0, -2.0, 0.0])
    mix(layers).sum().backward()
    before = mix.scalars.grad.clone()  # type: ignore[union-attr]
    mix.pull()
    penalty = 0.5 * (mix.scalars**2).sum()
    assert mix.scalars.grad is not None
    torch.testing.assert_close(mix.scalars.grad, before + torch.autograd.grad(penalty, mix.scalars)[0])


def test_features_before_and_after_the_rnn() -> None:
    ids = np.arange(3)
    tokens = TokenBatch.collate(
        [TokenizedWindow({"x": ids}, ids, np.zeros((3, 2), int), np.zeros(3, int), ids)]
    )
    states, late = torch.randn(1, 3, 4), torch.randn(1, 1, 3, 4)
    for features, width in (("before", 10), ("after", 14), ("both", 14)):
        body = BiLSTM(4, hidden_size=5, features=features).eval()
        out = body((EncoderOutput(states, hidden_states=late),), (tokens,))[0].last_hidden_state
        assert body.hidden_size == out.shape[-1] == width
        if features != "before":
            assert torch.equal(out[..., 10:], late[0])
            assert torch.equal(
                body((EncoderOutput(states),), (tokens,))[0].last_hidden_state[..., 10:], states
            )
    with pytest.raises(HarnessError, match=r"body.features=beside"):
        BiLSTM(4, features="beside")


@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        ("scratch", []),
        ("full", ["encoder.mix.layer_norm=true"]),
        ("embedding_init", []),
        ("slow_embedding", ["body=bilstm", "body.features=both"]),
        ("frozen", []),
        ("frozen", ["body=bilstm", "body.features=both"]),
        ("frozen", ["body=bilstm", "body.features=after"]),
        ("frozen", ["body=bilstm", "body.features=both", "encoder.layers=top"]),
        ("frozen", ["body=bilstm", "body.features=both", "feature_cache_gb=0"]),
    ],
)
def test_cells(tmp_path: Path, strategy: str, more: list[str]) -> None:
    base = ["encoder=elmo", f"encoder.path={elmo_folder()}", f"strategy={strategy}", "task=mini_ner"]
    record = run_cell(make_cell(tmp_path, *base, *QUICK, *more))
    assert record.status == "complete"
    assert record.coverage["words"] > 0
    assert record.coverage["words_cut"] == 0


def test_fine_tuned_elmo_uses_attention_flow_for_questions(tmp_path: Path) -> None:
    base = ["encoder=elmo", f"encoder.path={elmo_folder()}", "strategy=full", "task=mini_qa"]
    cell = make_cell(tmp_path, *base, *QUICK)
    assert (cell.skip, cell.body.name) == (None, "attention_flow")
    assert run_cell(cell).status == "complete"


@pytest.mark.parametrize("strategy", ["frozen", "full", "embedding_init"])
def test_word_vectors_concatenated_with_elmo(tmp_path: Path, strategy: str) -> None:
    base = [
        "encoder=concat",
        "encoder@encoder.members.second=elmo",
        f"strategy={strategy}",
        "task=mini_topic",
    ]
    mix = [] if strategy == "embedding_init" else ["encoder.layers=mix"]
    cell = make_cell(tmp_path, *base, f"encoder.members.second.path={elmo_folder()}", *mix, *QUICK)
    record = run_cell(cell)
    assert record.status == "complete"
    assert record.coverage["second.words"] > 0


def test_files_that_declare_more_than_they_contain(tmp_path: Path) -> None:
    """Options with 2^31 layers, and datasets that lie in other files or are declared but not stored."""
    folder = make_elmo(tmp_path / "a")
    config = {"path": str(folder)}
    assert check_elmo(config, tmp_path).num_layers == TINY.num_layers
    weights = next(folder.glob("*.hdf5"))
    with h5py.File(weights, "a") as file:
        shape = file["char_embed"].shape
        del file["char_embed"]
        file["char_embed"] = h5py.ExternalLink("/outside.hdf5", "/x")
    with pytest.raises(HarnessError, match="link to another file"):
        check_elmo(config, tmp_path)
    with h5py.File(weights, "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", shape, "f4", external=[(str(tmp_path / "raw"), 0, 1 << 20)])
    with pytest.raises(HarnessError, match="stored in another file"):
        check_elmo(config, tmp_path)
    with h5py.File(weights, "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", shape, "f4", chunks=True)
    with pytest.raises(HarnessError, match="0 bytes in the file"):
        check_elmo(config, tmp_path)
    options = json.loads((folder / "options.json").read_text())
    options["lstm"]["n_layers"] = 1 << 31
    (folder / "options.json").write_text(json.dumps(options))
    with pytest.raises(HarnessError, match="n_layers is 2147483648"):
        check_elmo(config, tmp_path)
    (folder / "options.json").write_text('{"lstm": {"cell_clip": Infinity}}')
    with pytest.raises(HarnessError, match="Infinity is not a finite number"):
        check_elmo(config, tmp_path)
