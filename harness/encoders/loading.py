"""Encoders for use outside a cell: load one by its name, turn sentences into vectors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.core.instantiate import build, locate
from harness.core.paths import conf_dir
from harness.data.text import Text
from harness.data.tokens import TokenBatch, TokenizedWindow, word_states
from harness.encoders.base import Encoder, WindowOptions
from harness.errors import HarnessError, did_you_mean


def load_encoder(
    name: str,
    path: str | os.PathLike[str] | None = None,
    *,
    random_init: bool = False,
    stateful: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Encoder:
    """An encoder by the name of its configuration, in eval mode.

    Args:
        name: an encoder's YAML without the ending, as in ``harness list``.
        path: its file or folder here; None = as the YAML says, fetched when it names an address.
        random_init: the same architecture with random weights from torch's global generator.
        stateful: row k of a batch starts from the state in which row k of the batch before it ended, as the
            original ELMo does; :meth:`~harness.encoders.base.Encoder.encode` then keeps the sentences' order.
        cache_dir: tables and downloads; None = $HARNESS_CACHE or the user's cache.
        config_dir: a folder of one's own whose ``encoder/`` holds further YAMLs.
        options: override the YAML's keys.

    Raises:
        HarnessError: no such name or option, or files that cannot be had.
    """
    from harness.core.paths import cache_folder

    config = {**encoder_config(name, config_dir=config_dir), **options}
    if path is not None:
        config["path"] = os.fspath(path)
    cache = cache_folder(None if cache_dir is None else os.fspath(cache_dir))
    if config.get("_files_"):
        locate(config["_files_"])(config, cache)
    encoder: Encoder = build(config, random_init=random_init, cache_dir=cache)
    if stateful:
        if not hasattr(encoder, "stateful"):
            raise HarnessError(f"encoder {name}: stateful=True: it keeps no state from one batch to the next")
        encoder.stateful = True  # type: ignore[assignment]
    return encoder.eval()


def encoder_config(name: str, *, config_dir: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The composed YAML of an encoder as plain data.

    Raises:
        HarnessError: there is none of that name, or it does not compose.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from harness.core.resolvers import register

    register()
    folders = [conf_dir(), *([] if config_dir is None else [Path(config_dir).expanduser().absolute()])]
    names = {p.stem for folder in folders for p in (folder / "encoder").glob("*.yaml")}
    if name not in names:
        where = (
            f'; a checkpoint\'s folder goes to path: load_encoder("bert", path={name!r})'
            if "/" in name
            else ""
        )
        raise HarnessError(f"encoder {name}: there is none of that name, {did_you_mean(name, names)}{where}")
    search = [f"hydra.searchpath=['file://{folders[-1]}']"] if config_dir is not None else []
    try:
        with initialize_config_dir(str(folders[0]), version_base="1.3"):
            composed = compose(None, overrides=[f"+encoder={name}", *search])
        data = OmegaConf.to_container(composed.encoder, resolve=True)
    except (HydraException, OmegaConfBaseException) as e:
        raise HarnessError(f"encoder {name}: {e}") from e
    return {str(k): v for k, v in data.items()} if isinstance(data, dict) else {}


@torch.no_grad()
def encode(
    encoder: Encoder,
    sentences: Sequence[str | Sequence[str]],
    *,
    layers: str | int | Sequence[int] = "top",
    batch_size: int = 32,
) -> list[np.ndarray]:
    """Vectors of the words of each sentence; see :meth:`harness.encoders.base.Encoder.encode`."""
    chosen = _layer_numbers(layers, encoder.num_layers)
    if batch_size < 1:
        raise HarnessError(f"batch_size={batch_size}: must be at least 1")
    texts = [_text(s, i) for i, s in _checked(sentences)]
    deep = layers != "top"
    shape = (encoder.num_layers + 1,) if deep else ()
    out = [np.zeros((*shape, len(t), encoder.hidden_size), dtype=np.float32) for t in texts]
    windows = encoder.tokenizer.tokenize(texts, reach(encoder))
    rows = [(i, row) for i, its in enumerate(windows) for row in its]
    if not getattr(encoder, "stateful", False):  # else a row's number is what carries its state
        rows = sorted((r for r in rows if len(texts[r[0]])), key=lambda r: len(r[1]))
    with _eval_mode(encoder):
        for at in range(0, len(rows), batch_size):
            _encode_batch(encoder, rows[at : at + batch_size], out, deep=deep)
    return out if chosen is None else [array[chosen] for array in out]


def _layer_numbers(layers: Any, top: int) -> int | list[int] | None:
    """What to pick of all layers; None for nothing or all of them."""
    if layers in ("top", "all"):
        return None
    numbers = list(layers) if isinstance(layers, Sequence) and not isinstance(layers, str) else [layers]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= top:
            hint = "a mix is learnt in a cell: encoder.layers=mix; here " if layers == "mix" else ""
            raise HarnessError(f"layers={layers!r}: {hint}top, all, or numbers of layers from 0 to {top}")
    return layers if isinstance(layers, int) else numbers


def reach(encoder: Encoder) -> WindowOptions:
    """Windows as wide as the encoder takes, with 64 tokens of stride or a quarter of a narrow one."""
    stride = 64 if encoder.max_length is None else min(64, encoder.max_length // 4)
    return WindowOptions(max_length=encoder.max_length, stride=stride)


def _encode_batch(
    encoder: Encoder, rows: Sequence[tuple[int, TokenizedWindow]], out: Sequence[np.ndarray], *, deep: bool
) -> None:
    device = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    tokens = TokenBatch.collate([row for _, row in rows], pad=encoder.tokenizer.pad).to(device)
    encoded = encoder(tokens, all_layers=deep)
    layers = encoded.hidden_states if deep else encoded.last_hidden_state[None]
    words = torch.stack([word_states(layer, tokens, how="mean") for layer in layers])  # (K, B, W, H)
    vectors = words.float().cpu().numpy()
    for place, (index, row) in enumerate(rows):
        owned = np.flatnonzero(row.word_to_token >= 0)
        found = vectors[:, place, owned]
        if deep:
            out[index][:, owned] = found
        else:
            out[index][owned] = found[0]


def _checked(sentences: Sequence[str | Sequence[str]]) -> Iterator[tuple[int, str | Sequence[str]]]:
    if isinstance(sentences, str):
        raise HarnessError(f"encode takes a list of sentences, not the string {sentences[:40]!r}")
    return enumerate(sentences)


def _text(sentence: str | Sequence[str], index: int) -> Text:
    if isinstance(sentence, str):
        return Text.from_string(sentence)
    if not isinstance(sentence, Sequence):
        raise HarnessError(f"sentence {index}: {sentence!r} is neither a string nor a list of words")
    words = list(sentence)
    for word in words:
        if not isinstance(word, str) or not word:
            raise HarnessError(
                f"sentence {index}: {word!r} is not a word; strings that are not empty are wanted"
            )
    return Text.from_words(words)


@contextmanager
def _eval_mode(encoder: Encoder) -> Iterator[None]:
    """Eval mode inside; afterwards every module is in the mode it was in."""
    training = [m for m in encoder.modules() if m.training]
    encoder.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
