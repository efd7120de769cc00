"""Load a transformer checkpoint completely, or fail; weights are never silently left random."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.core.fingerprint import data_fingerprint, files_fingerprint
from harness.encoders.transformer.encoder import (
    TransformerEncoder,
    embedding_table,
    layer_list,
    position_limit,
)
from harness.encoders.transformer.hub import checkpoint_files, local_folder
from harness.encoders.transformer.template import read_template
from harness.encoders.transformer.tokenizer import HFTokenizer
from harness.errors import HarnessError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from transformers import PretrainedConfig, PreTrainedModel

POOLER = "pooler"


def load_transformer(
    *,
    name: str,
    path: str | None,
    random_init: bool,
    cache_dir: Path,
    causal: bool,
    added: int = 0,
    options: Mapping[str, object] | None = None,
) -> TransformerEncoder:
    """Load a checkpoint as an encoder, in training mode.

    Args:
        name: name in the configuration.
        path: folder or hub name.
        random_init: the same architecture with random weights from torch's global generator, without a
            pooler.
        cache_dir: unused; see :func:`harness.encoders.transformer.hub.local_folder`.
        causal: whether the family is causal; a checkpoint of the other kind is rejected.
        added: tokens beyond the table (see :class:`TransformerEncoder`); their ids start at the table's size.
        options: other options that determine the states; part of the fingerprint.

    Raises:
        HarnessError: missing or damaged files, missing weights, or an architecture of the other kind.
    """
    folder = local_folder(path, cache_dir)
    files = checkpoint_files(folder)
    config = _config(folder)
    model = _random_model(config, folder) if random_init else _pretrained_model(config, folder, files)
    tokenizer = load_tokenizer(folder, files, model)

    def identity() -> str:
        return data_fingerprint([files_fingerprint(files), "transformer", dict(options or {})])

    first = tokenizer.single.parts[:1]
    encoder = TransformerEncoder(
        model,
        tokenizer,
        name=name,
        pooling="cls" if not causal and first and first[0].text < 0 else "last",
        identity=None if random_init else identity,
        added=added,
    )
    if encoder.structure.causal != causal:
        kind, other = ("bert", "gpt") if causal else ("gpt", "bert")
        attention = "bidirectional" if causal else "causal"
        raise HarnessError(
            f"{folder}: a {config.model_type} model is {attention}: use encoder={kind}, not {other}"
        )
    return encoder.train()


def load_tokenizer(folder: Path, files: Mapping[str, Path], model: PreTrainedModel) -> HFTokenizer:
    """Load the checkpoint's fast tokenizer.

    ``tokenizer.json`` is used as it is; older files (``vocab.txt``, ``vocab.json`` with ``merges.txt``,
    SentencePiece models) are converted to a fast tokenizer.

    Raises:
        HarnessError: it cannot be built, or it produces ids beyond the embedding table.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    reader: Any = PreTrainedTokenizerFast if "tokenizer.json" in files else AutoTokenizer
    try:
        loaded = reader.from_pretrained(str(folder), local_files_only=True)
        backend = loaded.backend_tokenizer
    except Exception as e:
        raise HarnessError(f"{folder}: no fast tokenizer can be built from {', '.join(files)} ({e})") from e
    rows = len(embedding_table(model))
    single, pair = read_template(backend, pair=False), read_template(backend, pair=True)
    max_id = max(backend.get_vocab_size(with_added_tokens=False) - 1, *single.ids, *pair.ids, 0)
    if max_id >= rows:
        raise HarnessError(
            f"{folder}: the tokenizer produces ids up to {max_id}, but the embedding table has {rows} rows: "
            "tokenizer and weights are not of the same model"
        )
    unknown = _unknown(loaded.unk_token, backend)
    pad = loaded.pad_token_id
    return HFTokenizer(
        backend,
        single,
        pair=pair,
        unknown=unknown,
        pad_id=pad if pad is not None and pad < rows else 0,
        types=(getattr(model.config, "type_vocab_size", 0) or 0) > 1,
        max_length=position_limit(model),
    )


def _unknown(default: str | None, backend: Backend) -> int | None:
    name = getattr(backend.model, "unk_token", None) or default
    return None if name is None else backend.token_to_id(name)


def _config(folder: Path) -> PretrainedConfig:
    from transformers import AutoConfig

    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    except Exception as e:
        raise HarnessError(
            f"{folder / 'config.json'}: not the configuration of a supported model ({e})"
        ) from e
    if config.is_encoder_decoder:
        raise HarnessError(
            f"{folder}: {config.model_type} is an encoder-decoder; expected an encoder (BERT) or a decoder "
            "(GPT)"
        )
    config.use_cache = False
    return config


def _random_model(config: PretrainedConfig, folder: Path) -> PreTrainedModel:
    from transformers import AutoModel

    try:
        model: PreTrainedModel = AutoModel.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    except ValueError as e:
        raise HarnessError(f"{folder}: AutoModel does not support {config.model_type} ({e})") from e
    _drop_pooler(model)
    return model


def _pretrained_model(config: PretrainedConfig, folder: Path, files: Mapping[str, Path]) -> PreTrainedModel:
    """Load the model with the checkpoint's weights, and with a pooler only if the checkpoint contains it."""
    from transformers import AutoModel

    try:
        # restore the generator: later draws must not depend on the number of missing weights
        with _quiet(), torch.random.fork_rng(devices=[]):
            loaded: tuple[PreTrainedModel, dict[str, Any]] = AutoModel.from_pretrained(
                str(folder),
                config=config,
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=any(n.endswith(".safetensors") for n in files),
                weights_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as e:
        raise HarnessError(f"{folder}: the weights cannot be read ({type(e).__name__}: {e})") from e
    model, info = loaded
    missing, unexpected = set(info["missing_keys"]), set(info["unexpected_keys"])
    mismatched = {key[0] for key in info["mismatched_keys"]}
    if any(_of_pooler(k) for k in missing | mismatched):
        _drop_pooler(model)
    _check(model, folder, missing=missing | mismatched, mismatched=mismatched, unexpected=unexpected)
    return model


def _check(
    model: PreTrainedModel, folder: Path, *, missing: set[str], mismatched: set[str], unexpected: set[str]
) -> None:
    """Reject weights that do not cover the whole encoder, or that have more layers than its configuration."""
    missing = {k for k in missing if not _of_pooler(k)}
    total = len(model.state_dict())
    if missing:
        shown = ", ".join(sorted(missing)[:3])
        raise HarnessError(
            f"{folder}: {total - len(missing)} of {total} weights of a {model.config.model_type} matched, "
            f"{len(missing - mismatched)} missing, {len(mismatched & missing)} of another shape, "
            f"{len(unexpected)} unexpected (first missing: {shown}): "
            "these weights and config.json are not of one model"
        )
    path, layers = layer_list(model)
    pattern = re.compile(rf"(?:^|\.){re.escape(path)}\.(\d+)\.")
    beyond = {int(m[1]) for k in unexpected if (m := pattern.search(k)) and int(m[1]) >= len(layers)}
    if beyond:
        raise HarnessError(
            f"{folder}: the weights have {max(beyond) + 1} layers, config.json says {len(layers)}: correct "
            "config.json"
        )


def _of_pooler(key: str) -> bool:
    return key.startswith(f"{POOLER}.")


def _drop_pooler(model: PreTrainedModel) -> None:
    if getattr(model, POOLER, None) is not None:
        setattr(model, POOLER, None)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide transformers' progress bar and table of loaded keys, which are checked here; keep other
    warnings."""
    from transformers.utils import logging as hf_logging

    def keep(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    logger = logging.getLogger("transformers.modeling_utils")
    bar = hf_logging.is_progress_bar_enabled()
    logger.addFilter(keep)
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logger.removeFilter(keep)
        if bar:
            hf_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
