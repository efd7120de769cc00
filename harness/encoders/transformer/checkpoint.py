"""Reading a transformer's checkpoint: all of its weights, or a clear refusal; never a silent random rest."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from harness.core.fingerprint import data_fingerprint, files_fingerprint
from harness.encoders.transformer.encoder import TransformerEncoder, layer_list, position_limit
from harness.encoders.transformer.hub import checkpoint_files, local_folder
from harness.encoders.transformer.template import read_template
from harness.encoders.transformer.tokenizer import HFTokenizer
from harness.errors import HarnessError

POOLER = "pooler"


def load_transformer(
    *,
    name: str,
    path: str | None,
    random_init: bool,
    cache_dir: Path,
    causal: bool,
    added: int = 0,
    options: Mapping[str, Any] | None = None,
) -> TransformerEncoder:
    """A checkpoint as an encoder, in training mode.

    Args:
        name: as in the configuration.
        path: directory or hub name.
        random_init: the same architecture with weights from torch's global generator, without a pooler.
        cache_dir: the harness's own files.
        causal: whether the family looks back only; a checkpoint of the other kind is refused.
        added: tokens beyond the table (see :class:`TransformerEncoder`); their ids start at the table's size.
        options: whatever else decides the encoder's states; enters the fingerprint.

    Raises:
        HarnessError: files missing or damaged, weights missing, or an architecture of another kind.
    """
    folder = local_folder(path, cache_dir)
    files = checkpoint_files(folder)
    config = _config(folder)
    model = _random_model(config, folder) if random_init else _pretrained_model(config, folder, files)
    tokenizer = load_tokenizer(folder, files, model)

    def identity() -> str:
        return data_fingerprint([files_fingerprint(files), "transformer", dict(options or {})])

    first = tokenizer.single.slots[:1]
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
        looks = "in both directions" if causal else "back only (causal)"
        raise HarnessError(
            f"{folder}: a {config.model_type} model looks {looks}: encoder={kind}, not {other}"
        )
    return encoder.train()


def load_tokenizer(folder: Path, files: Mapping[str, Path], model: Any) -> HFTokenizer:
    """The checkpoint's fast tokenizer. ``tokenizer.json`` is taken at its word; older files (``vocab.txt``,
    ``vocab.json`` with ``merges.txt``, SentencePiece models) are turned into a fast tokenizer first.

    Raises:
        HarnessError: it cannot be built, or it makes ids the embedding table has no row for.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    reader: Any = PreTrainedTokenizerFast if "tokenizer.json" in files else AutoTokenizer
    try:
        whole = reader.from_pretrained(str(folder), local_files_only=True)
        backend = whole.backend_tokenizer
    except Exception as e:
        raise HarnessError(f"{folder}: no fast tokenizer can be built from {', '.join(files)} ({e})") from e
    rows = model.get_input_embeddings().weight.shape[0]
    single, pair = read_template(backend, pair=False), read_template(backend, pair=True)
    most = max(backend.get_vocab_size(with_added_tokens=False) - 1, *single.ids, *pair.ids, 0)
    if most >= rows:
        raise HarnessError(
            f"{folder}: the tokenizer makes ids up to {most}, but the embedding table has {rows} rows: "
            "tokenizer and weights are not of the same model"
        )
    unknown = _unknown(whole, backend)
    pad = whole.pad_token_id
    return HFTokenizer(
        backend,
        single,
        pair=pair,
        unknown=unknown,
        pad_id=pad if pad is not None and pad < rows else 0,
        types=(getattr(model.config, "type_vocab_size", 0) or 0) > 1,
        max_length=position_limit(model),
    )


def _unknown(whole: Any, backend: Any) -> int | None:
    name = getattr(backend.model, "unk_token", None) or whole.unk_token
    return None if name is None else backend.token_to_id(name)


def _config(folder: Path) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    except Exception as e:
        raise HarnessError(f"{folder / 'config.json'}: no configuration of a known model ({e})") from e
    if config.is_encoder_decoder:
        raise HarnessError(
            f"{folder}: {config.model_type} is an encoder-decoder; one half of it (BERT, GPT) is wanted"
        )
    config.use_cache = False
    return config


def _random_model(config: Any, folder: Path) -> Any:
    from transformers import AutoModel

    try:
        model = AutoModel.from_config(config, dtype=torch.float32)
    except ValueError as e:
        raise HarnessError(f"{folder}: AutoModel knows no {config.model_type} ({e})") from e
    _drop_pooler(model)
    return model


def _pretrained_model(config: Any, folder: Path, files: Mapping[str, Path]) -> Any:
    """The model with the checkpoint's weights; its pooler only if that is among them."""
    from transformers import AutoModel

    try:
        # the generator is put back: what follows must not depend on how many weights a checkpoint lacks
        with _quiet(), torch.random.fork_rng(devices=[]):
            model, info = AutoModel.from_pretrained(
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
    missing, unexpected = set(info["missing_keys"]), set(info["unexpected_keys"])
    mismatched = {key[0] for key in info["mismatched_keys"]}
    if any(_of_pooler(k) for k in missing | mismatched):
        _drop_pooler(model)
    _check(model, folder, missing=missing | mismatched, mismatched=mismatched, unexpected=unexpected)
    return model


def _check(
    model: Any, folder: Path, *, missing: set[str], mismatched: set[str], unexpected: set[str]
) -> None:
    """Refuse weights that do not make the whole encoder, or that make more than its configuration says."""
    missing = {k for k in missing if not _of_pooler(k)}
    total = len(model.state_dict())
    if missing:
        shown = ", ".join(sorted(missing)[:3])
        raise HarnessError(
            f"{folder}: {total - len(missing)} of {total} weights of a {model.config.model_type} matched, "
            f"{len(missing - mismatched)} missing, {len(mismatched & missing)} of another shape, "
            f"{len(unexpected)} unexpected (first not filled: {shown}): "
            "these weights and config.json are not of one model"
        )
    path, layers = layer_list(model)
    pattern = re.compile(rf"(?:^|\.){re.escape(path)}\.(\d+)\.")
    beyond = {int(m[1]) for k in unexpected if (m := pattern.search(k)) and int(m[1]) >= len(layers)}
    if beyond:
        raise HarnessError(
            f"{folder}: the weights have {max(beyond) + 1} layers, config.json says {len(layers)}: mend it"
        )


def _of_pooler(key: str) -> bool:
    return key.startswith(f"{POOLER}.")


def _drop_pooler(model: Any) -> None:
    if getattr(model, POOLER, None) is not None:
        model.pooler = None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bar and its table of loaded keys off the screen: the keys are judged here.
    Any other warning gets through."""
    from transformers.utils import logging as hf_logging

    def keep(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    logger = logging.getLogger("transformers.modeling_utils")
    bar = hf_logging.is_progress_bar_enabled()
    logger.addFilter(keep)
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        logger.removeFilter(keep)
        if bar:
            hf_logging.enable_progress_bar()
