"""Tiny random AWD-LSTMs, written in every supported format."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch

from harness.encoders.awd_lstm.checkpoint import write_fastai, write_model
from harness.encoders.awd_lstm.model import AwdLstm, AwdLstmLM, Sizes

SPECIALS = ("xxunk", "xxpad", "xxbos", "xxeos", "xxfld", "xxrep", "xxwrep", "xxup", "xxmaj")
WORDS = (
    "the", "quick", "brown", "fox", "word", "river", "bank", "runs", "ana", "do", "n't", "it", "'s", "is",
    "a", "of",
    "and", "what", "to", "in", "was", ".", ",", "?", "!", "-", "(", ")", "3", "서울에서", "왔다", "🚀",
)  # fmt: skip
FORMATS = ("ours", "fastai", "encoder", "learner", "first", "old")


def vocabulary() -> list[str]:
    return [*SPECIALS, *WORDS]


def tiny_lm(*, seed: int = 0, words: int | None = None, scale: float = 4.0) -> AwdLstmLM:
    """Build a model with embedding size 6, hidden size 10 and 3 layers.

    Embeddings are multiplied by ``scale`` and other weights by 1.5, so that the context changes the states
    visibly.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        core = AwdLstm(Sizes(len(vocabulary()) if words is None else words, 6, 10, 3))
        out = AwdLstmLM(core, torch.randn(core.sizes.words))
        with torch.no_grad():
            for parameter in core.parameters():
                parameter.mul_(scale if parameter is core.table.weight else 1.5)
    return out


def make_awd_lstm(folder: Path, kind: str = "ours", *, seed: int = 0, backwards: bool = False) -> Path:
    """Write a model in one of :data:`FORMATS`.

    ``ours``: this project's format. ``fastai``: fastai 2's language model. ``encoder``: only its encoder.
    ``learner``: a classifier saved by ``learn.save`` with the optimizer's state. ``first``: fastai 1's names.
    ``old``: the names of ``fwd_wt103.h5``.
    """
    lm = tiny_lm(seed=seed)
    if kind == "ours":
        return write_model(folder, lm.weights(), vocabulary(), backwards=backwards)
    write_fastai(folder, lm.weights(), vocabulary())
    state = torch.load(folder / "model.pth", weights_only=True)
    if kind == "encoder":
        state = {k[2:]: v for k, v in state.items() if k.startswith("0.")}
    elif kind == "learner":
        state = {
            ("0.module." + k[2:] if k.startswith("0.") else k): v for k, v in state.items() if k[0] == "0"
        }
        state = {"model": state | {"1.layers.0.0.weight": torch.ones(18)}, "opt": {"hypers": [{"lr": 0.1}]}}
    elif kind == "first":
        raw = [k for k in state if k.endswith("_raw")]
        state |= {k[:-4].replace(".weight_hh", ".module.weight_hh"): state[k] * 2 for k in raw}
    elif kind == "old":
        state = {k.replace(".weight_hh_l0_raw", ".module.weight_hh_l0_raw"): v for k, v in state.items()}
        state["0.encoder_with_dropout.embed.weight"] = state.pop("0.encoder_dp.emb.weight")
        del state["1.decoder.bias"]
        (folder / "model.pth").unlink()
    torch.save(state, folder / ("model.h5" if kind == "old" else "model.pth"))
    if kind == "learner":
        (folder / "model_vocab.pkl").unlink()
        (folder / "itos.json").write_text(json.dumps(vocabulary()))
    return folder


def make_both(folder: Path, kind: str = "ours") -> Path:
    """Write models ``forward`` and ``backward`` into one folder."""
    make_awd_lstm(folder / "forward", kind, seed=1)
    make_awd_lstm(folder / "backward", kind, seed=2, backwards=True)
    return folder


@cache
def awd_lstm_folder(*, both: bool = False) -> Path:
    """Return a model folder shared by all tests of this process."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-awd-lstm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_both(folder) if both else make_awd_lstm(folder)
