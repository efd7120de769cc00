"""AWD-LSTM files: every published layout gives the same encoder, anything else a clear error."""

from __future__ import annotations

import json
import os
import pickle
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harness
from harness.encoders.awd_lstm.checkpoint import read_checkpoint, read_tensors, write_fastai, write_model
from harness.encoders.awd_lstm.encoder import load, load_language_model
from harness.encoders.awd_lstm.files import awd_lstm_files, read_vocabulary
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError
from tests.helpers.tiny_awd_lstm import FORMATS, make_awd_lstm, make_both, tiny_lm, vocabulary


def checkpoint_files(folder: Path) -> dict[str, Path]:
    return awd_lstm_files({"path": folder}, folder)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_encoder(tmp_path: Path, kind: str) -> None:
    """Names with and without '0.', '.module' and '_raw' are read; '_raw' wins over the dropped-out copy."""
    encoder = harness.load_encoder("ulmfit", make_awd_lstm(tmp_path / kind, kind), cache_dir=tmp_path)
    lm = tiny_lm()
    for name, tensor in encoder.core.state_dict().items():  # type: ignore[operator, union-attr]
        if name != "table.added":
            assert torch.equal(tensor, lm.core.state_dict()[name]), name
    counts = read_checkpoint(checkpoint_files(tmp_path / kind)).counts
    assert counts["missing"] == 0
    assert counts["unexpected"] == (1 if kind == "learner" else 0)


def test_weights_of_another_model_are_rejected(tmp_path: Path) -> None:
    """A file none of whose tensors match must not give a randomly initialised encoder."""
    make_awd_lstm(tmp_path, "fastai")
    torch.save({"foo.bar": torch.ones(2)}, tmp_path / "model.pth")
    with pytest.raises(HarnessError, match=r"model\.pth: 0 of 1 tensors matched"):
        read_checkpoint(checkpoint_files(tmp_path))


def broken(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        state = torch.load(folder / "model.pth", weights_only=True)
        change(state)
        torch.save(state, folder / "model.pth")

    return make


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            broken(lambda s: s.pop("0.rnns.1.module.bias_hh_l0")),
            r"15 of 15.*1 missing \(rnns\.1\.bias_hh_l0\)",
        ),
        (
            broken(lambda s: s.update({"0.rnns.2.module.weight_ih_l0": torch.ones(24, 9)})),
            r"rnns\.2\.weight_ih_l0 has shape \(24, 9\), expected \(24, 10\)",
        ),
        (broken(lambda s: s.update({"0.rnns.0.module.weight_ih_l0_reverse": torch.ones(1)})), "ulmfit_bi"),
        (broken(lambda s: s.update({"1.decoder.bias": torch.ones(3)})), r"decoder\.bias has shape \(3,\)"),
        (lambda f: (f / "model.pth").write_bytes(b"not a file of torch"), r"read safely.*learn\.save"),
        (lambda f: torch.save([1, 2], f / "model.pth"), "contains a list"),
        (
            lambda f: (f / "model_vocab.pkl").write_bytes(pickle.dumps(vocabulary()[:-1])),
            "40 words.* 41 rows",
        ),
        (lambda f: (f / "model_vocab.pkl").write_bytes(pickle.dumps([1, 2])), "entry 0 is 1"),
        (lambda f: (f / "model_vocab.pkl").write_bytes(pickle.dumps({"a": 1})), "found a NoneType"),
        (lambda f: (f / "model_vocab.pkl").write_bytes(b"junk"), "save it as JSON"),
        (lambda f: (f / "second.pth").write_bytes(b""), r"found: model\.pth, second\.pth"),
        (lambda f: (f / "model_vocab.pkl").unlink(), "found: none"),
        (lambda f: (f / "options.json").write_text("[]"), "options.json"),
        (lambda f: (f / "options.json").write_text('{"backwards": "no"}'), "true or false"),
    ],
)
def test_damaged_files_give_one_error(tmp_path: Path, damage: Callable[[Path], Any], message: str) -> None:
    make_awd_lstm(tmp_path, "fastai")
    damage(tmp_path)
    with pytest.raises(HarnessError, match=message):
        read_checkpoint(checkpoint_files(tmp_path))


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch harmed",)


def test_code_in_a_file_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "itos.pkl").write_bytes(pickle.dumps([Evil()]))
    torch.save({"0.encoder.weight": Evil()}, tmp_path / "model.pth")
    with pytest.raises(HarnessError, match=r"system"):
        read_vocabulary(tmp_path / "itos.pkl")
    with pytest.raises(HarnessError, match=r"model\.pth"):
        read_tensors(tmp_path / "model.pth")
    assert not (tmp_path / "harmed").exists()


def test_vocabulary_formats(tmp_path: Path) -> None:
    words = ["xxunk", "the", "\n", "서울"]
    (tmp_path / "a.json").write_text(json.dumps(words))
    (tmp_path / "b.json").write_text(json.dumps({"itos": words}))
    (tmp_path / "c.pkl").write_bytes(pickle.dumps(words))
    (tmp_path / "d.txt").write_text("xxunk\nthe\n서울\n", encoding="utf-8")
    assert all(read_vocabulary(tmp_path / n) == words for n in ("a.json", "b.json", "c.pkl"))
    assert read_vocabulary(tmp_path / "d.txt") == ["xxunk", "the", "서울"]


def test_files_by_folder_by_path_and_by_name(tmp_path: Path) -> None:
    make_awd_lstm(tmp_path, "fastai")
    weights, words = tmp_path / "model.pth", tmp_path / "model_vocab.pkl"
    files = {"weights": weights, "vocabulary": words}
    assert awd_lstm_files({"path": tmp_path}, tmp_path) == files
    assert awd_lstm_files({"path": weights}, tmp_path) == files
    assert awd_lstm_files({"files": {"weights": weights, "vocabulary": words}}, tmp_path) == files
    with pytest.raises(HarnessError, match=r"did you mean model\.pth"):
        awd_lstm_files({"files": {"weights": tmp_path / "modle.pth", "vocabulary": words}}, tmp_path)
    with pytest.raises(HarnessError, match=r"expected weights and vocabulary"):
        awd_lstm_files({"files": {"weights": weights}}, tmp_path)
    with pytest.raises(HarnessError, match=r"encoder x.*set encoder\.path=DIR"):
        awd_lstm_files({"name": "x"}, tmp_path)
    with pytest.raises(HarnessError, match="no such folder"):
        awd_lstm_files({"path": tmp_path / "none"}, tmp_path)


def both(config: dict[str, Any]) -> EncoderConfig:
    files = "harness.encoders.awd_lstm.files.bidirectional_files"
    return EncoderConfig.parse({"_target_": "builtins.dict", "_files_": files, **config})


def test_files_of_both_directions(tmp_path: Path) -> None:
    make_both(tmp_path)
    member = {"_target_": "builtins.dict", "path": None}
    members = {"forward": member, "backward": dict(member)}
    files = both({"members": members, "path": tmp_path}).files(tmp_path)
    assert files["backward.weights"] == tmp_path / "backward" / "model.safetensors"
    assert set(files) == {
        f"{d}.{r}" for d in ("forward", "backward") for r in ("weights", "vocabulary", "options")
    }
    with pytest.raises(HarnessError, match=r"members\.backward"):
        both({"members": {"forward": member}, "path": tmp_path}).files(tmp_path)
    with pytest.raises(HarnessError, match=r"expected one of each"):
        harness.load_encoder(
            "ulmfit_bi", tmp_path, cache_dir=tmp_path, members=_members(tmp_path, back=False)
        )


def _members(folder: Path, *, back: bool) -> dict[str, Any]:
    one = {"_target_": "harness.encoders.awd_lstm.load", "name": "x", "path": str(folder / "forward")}
    return {"forward": one, "backward": {**one, "backwards": back}}


def test_written_models_can_be_read(tmp_path: Path) -> None:
    lm = tiny_lm(seed=3)
    write_model(tmp_path / "ours", lm.weights(), vocabulary(), backwards=True)
    write_fastai(tmp_path / "fastai", lm.weights(), vocabulary(), name="lstm")
    for folder, backwards in (("ours", True), ("fastai", None)):
        model, checkpoint = load_language_model(tmp_path / folder)
        assert checkpoint.vocabulary == vocabulary()
        assert checkpoint.backwards is backwards
        assert torch.equal(model.bias, lm.bias)
        for name, tensor in model.core.state_dict().items():
            assert torch.equal(tensor, lm.core.state_dict()[name])
    assert load(name="x", path=tmp_path / "ours", cache_dir=tmp_path).backwards


def test_fine_tuned_encoder_is_written_with_its_new_words(tmp_path: Path) -> None:
    encoder = load(name="x", path=make_awd_lstm(tmp_path / "a"), cache_dir=tmp_path)
    encoder.restrict(["zebra", "gnu"])
    model, words = encoder.language_model()
    write_model(tmp_path / "b", model.weights(), words)
    again = load(name="x", path=tmp_path / "b", cache_dir=tmp_path)
    assert again.tokenizer.vocabularies["input_ids"].known("zebra")
    one, two = (e.eval().encode(["the zebra runs"])[0] for e in (encoder, again))
    assert np.allclose(one, two, atol=1e-6)


def test_vocabulary_of_2018(tmp_path: Path) -> None:
    """Vocabularies before fastai 1 have other names for special tokens, and no xxmaj."""
    names = {"xxunk": "_unk_", "xxpad": "_pad_", "xxbos": "xbos", "xxup": "t_up", "xxmaj": "unused",
             "xxrep": "tk_rep", "xxwrep": "tk_wrep"}  # fmt: skip
    words = [names.get(w, w) for w in vocabulary()]
    write_model(tmp_path, tiny_lm().weights(), words)
    encoder = load(name="x", path=tmp_path, cache_dir=tmp_path)
    from harness.data.text import Text
    from harness.data.tokenizer import WindowOptions

    ((row,),) = encoder.tokenizer.tokenize([Text.from_string("The RIVER runs")], WindowOptions())
    assert [words[i] for i in row.inputs["input_ids"]] == ["xbos", "the", "t_up", "river", "runs"]


def test_gap_in_the_layer_numbers_is_rejected_at_once(tmp_path: Path) -> None:
    make_awd_lstm(tmp_path, "fastai")
    (weights,) = tmp_path.glob("*.pth")
    tensors = torch.load(weights, weights_only=True)
    torch.save({**tensors, "0.rnns.99999999.weight_hh_l0_raw": torch.zeros(2, 2)}, weights)
    with pytest.raises(HarnessError, match="not layer 3"):
        load_language_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"0.rnns.0.weight_hh_l0_raw": float("nan")}, "non-finite"),
        ({"1.decoder.weight": 3.0}, "only tied weights"),
    ],
)
def test_invalid_weights_are_rejected(tmp_path: Path, change: dict[str, float], word: str) -> None:
    make_awd_lstm(tmp_path, "fastai")
    (weights,) = tmp_path.glob("*.pth")
    tensors = torch.load(weights, weights_only=True)
    for key, value in change.items():
        tensors[key] = torch.full_like(tensors[key], value)
    torch.save(tensors, weights)
    with pytest.raises(HarnessError, match=word):
        load_language_model(tmp_path)


def test_sparse_tensors_are_rejected(tmp_path: Path) -> None:
    make_awd_lstm(tmp_path, "fastai")
    (weights,) = tmp_path.glob("*.pth")
    tensors = torch.load(weights, weights_only=True)
    torch.save({**tensors, "0.encoder.weight": tensors["0.encoder.weight"].to_sparse()}, weights)
    with pytest.raises(HarnessError, match="sparse"):
        load_language_model(tmp_path)


@pytest.mark.parametrize("value", ["no", 1, 0.0])
def test_backwards_must_be_true_or_false(tmp_path: Path, value: Any) -> None:
    with pytest.raises(HarnessError, match="backwards"):
        load(name="u", path=make_awd_lstm(tmp_path), cache_dir=tmp_path, backwards=value)


def test_pickled_fastcore_list_is_read_without_fastcore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class L:
        def __init__(self, items: list[str]) -> None:
            self.items = items

    L.__module__, L.__qualname__ = "fastcore.foundation", "L"
    stand_in = types.ModuleType("fastcore.foundation")
    stand_in.L = L  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fastcore", types.ModuleType("fastcore"))
    monkeypatch.setitem(sys.modules, "fastcore.foundation", stand_in)
    (tmp_path / "itos.pkl").write_bytes(pickle.dumps(L(["xxunk", "the"])))
    assert read_vocabulary(tmp_path / "itos.pkl") == ["xxunk", "the"]
