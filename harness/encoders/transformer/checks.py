"""Checks of a transformer checkpoint's files before it is loaded; torch-free.

Sizes are compared with the size of the weights' files, so that no configuration makes the loader allocate
more than the files can contain.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.encoders.facts import EncoderFacts
from harness.encoders.json_files import read_json_object
from harness.encoders.transformer.files import (
    CONFIG,
    TOKENIZER_CONFIG,
    TOKENIZER_SETS,
    checkpoint_files,
)
from harness.encoders.transformer.hub import local_folder
from harness.errors import HarnessError

ENCODERS = frozenset(
    [
        "albert",
        "bert",
        "big_bird",
        "camembert",
        "convbert",
        "data2vec-text",
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
        "ernie",
        "esm",
        "eurobert",
        "fnet",
        "funnel",
        "ibert",
        "layoutlm",
        "longformer",
        "luke",
        "megatron-bert",
        "mobilebert",
        "modernbert",
        "mpnet",
        "nomic_bert",
        "nystromformer",
        "rembert",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "squeezebert",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xlnet",
        "xmod",
        "yoso",
    ]
)
DECODERS = frozenset(
    [
        "bloom",
        "codegen",
        "cohere",
        "cohere2",
        "ctrl",
        "exaone4",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "glm",
        "glm4",
        "gpt2",
        "gpt-sw3",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gpt_neox_japanese",
        "gptj",
        "granite",
        "helium",
        "llama",
        "mamba",
        "mamba2",
        "mistral",
        "mixtral",
        "modernbert-decoder",
        "mpt",
        "nemotron",
        "olmo",
        "olmo2",
        "openai-gpt",
        "opt",
        "persimmon",
        "phi",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "rwkv",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
        "xglm",
    ]
)
"""``model_type`` of architectures whose attention is bidirectional or causal; others are found out by running
them."""
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
VOCABULARY_KEYS = ("vocab_size", "n_words")
WIDTH_KEYS = ("hidden_size", "n_embd", "d_model", "emb_dim", "dim")
MAX_LAYERS = 10_000
SMALL = 1 << 20
"""Sizes up to this are harmless: the loader reports weights that do not fit."""
NO_BFLOAT16 = {"deberta": "DeBERTa (version 1) masks with a number that bfloat16 cannot represent"}
_UNSIZED = ("funnel", "reformer")
"""Architectures whose number of layers is not a number in the configuration."""


def check_encoder(config: Mapping[str, object], cache_dir: Path) -> EncoderFacts:
    """Check the files of a bidirectional encoder (``_check_``).

    Raises:
        HarnessError: see :func:`inspect_checkpoint`.
    """
    return _check(config, cache_dir, causal=False)


def check_decoder(config: Mapping[str, object], cache_dir: Path) -> EncoderFacts:
    """Check the files of a causal decoder (``_check_``).

    Raises:
        HarnessError: see :func:`inspect_checkpoint`.
    """
    return _check(config, cache_dir, causal=True)


def _check(config: Mapping[str, object], cache_dir: Path, *, causal: bool) -> EncoderFacts:
    path = config.get("path")
    folder = local_folder(None if path is None else str(path), cache_dir)
    return inspect_checkpoint(folder, checkpoint_files(folder), causal=causal)


def inspect_checkpoint(folder: Path, files: Mapping[str, Path], *, causal: bool) -> EncoderFacts:
    """Check a checkpoint's files.

    Args:
        folder: for messages.
        files: by name, see :func:`harness.encoders.transformer.files.checkpoint_files`.
        causal: a decoder is expected, not an encoder.

    Raises:
        HarnessError: unreadable JSON, an architecture of another kind, code in the checkpoint, a size that
            the weights cannot have, or a tokenizer whose package is missing.
    """
    config = read_json_object(files[CONFIG], finite=False)  # Mamba 2 publishes Infinity
    _refuse_code(config, files[CONFIG])
    if TOKENIZER_CONFIG in files:
        settings = read_json_object(files[TOKENIZER_CONFIG], finite=False)
        _refuse_code(settings, files[TOKENIZER_CONFIG])
    if config.get("transformers_weights") is not None:
        raise HarnessError(
            f"{files[CONFIG]}: transformers_weights={config['transformers_weights']!r}: weights are "
            f"read from "
            "model.safetensors or pytorch_model.bin only; rename the file and remove the key"
        )
    _check_family(config, folder, causal=causal)
    _check_sizes(config, files)
    _check_sentencepiece(folder, files)
    layers = next((config[key] for key in LAYER_KEYS if key in config), None)
    known = isinstance(layers, int) and config.get("model_type") not in _UNSIZED
    return EncoderFacts(
        num_layers=layers if known and isinstance(layers, int) else None,
        no_bfloat16=NO_BFLOAT16.get(str(config.get("model_type")), ""),
    )


def reason_against(options: Mapping[str, object]) -> str | None:
    """Why a checkpoint cannot be adapted: it is ELECTRA's discriminator, by its ``config.json``; else None.

    Args:
        options: of the encoder; reads ``path``.
    """
    path = options.get("path")
    try:
        folder = local_folder(None if path is None else str(path), Path())
        config = read_json_object(folder / CONFIG, finite=False)
    except HarnessError:
        return None  # the encoder's loader reports it
    architectures = config.get("architectures")
    names = " ".join(map(str, architectures)) if isinstance(architectures, list) else ""
    if config.get("model_type") != "electra" or "MaskedLM" in names:
        return None
    return "was pretrained to detect replaced tokens, and its checkpoint lacks the generator of replacements"


def _refuse_code(config: Mapping[str, object], path: Path) -> None:
    if config.get("auto_map"):
        raise HarnessError(
            f"{path}: auto_map: the checkpoint brings its own code, which is never run; if transformers "
            f"implements {config.get('model_type') or 'this architecture'} itself, remove auto_map"
        )


def _check_family(config: Mapping[str, object], folder: Path, *, causal: bool) -> None:
    kind = config.get("model_type")
    if config.get("is_encoder_decoder"):
        raise HarnessError(
            f"{folder}: {kind} is an encoder-decoder; expected an encoder (BERT) or a decoder (GPT)"
        )
    decoder = kind in DECODERS or (kind in ENCODERS and config.get("is_decoder") is True)
    if decoder and not causal:
        raise HarnessError(wrong_family(folder, str(kind), causal=True))
    if kind in ENCODERS and not decoder and causal:
        raise HarnessError(wrong_family(folder, str(kind), causal=False))


def wrong_family(folder: Path, kind: str, *, causal: bool) -> str:
    """Return the message for a model of the other kind; ``causal`` = what it is."""
    name, other = ("gpt", "bert") if causal else ("bert", "gpt")
    attention = "causal" if causal else "bidirectional"
    return f"{folder}: a {kind} model is {attention}: use encoder={name}, not {other}"


def _check_sizes(config: Mapping[str, object], files: Mapping[str, Path]) -> None:
    """Refuse sizes that no weights in these files can have: each number takes at least half a byte."""
    room = max(2 * weight_bytes(files), SMALL)
    for key, value in _numbers(config):
        if key in LAYER_KEYS and not 0 <= value <= MAX_LAYERS:
            raise HarnessError(f"{files[CONFIG]}: {key}={value}: expected 0 to {MAX_LAYERS} layers")
        if key in (*VOCABULARY_KEYS, *WIDTH_KEYS) and not 0 < value <= room:
            raise HarnessError(f"{files[CONFIG]}: {key}={value}: its weights have {room // 2} bytes")
        if not -(1 << 62) < value < 1 << 62:
            raise HarnessError(f"{files[CONFIG]}: {key} is a number of {len(str(abs(value)))} digits")


def _numbers(config: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    for key, value in config.items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield key, value


def weight_bytes(files: Mapping[str, Path]) -> int:
    """Return the size of all files of weights."""
    return sum(p.stat().st_size for name, p in files.items() if name.endswith((".safetensors", ".bin")))


def _check_sentencepiece(folder: Path, files: Mapping[str, Path]) -> None:
    complete = [names for names in TOKENIZER_SETS if all(name in files for name in names)]
    if all(name.endswith(".model") for names in complete for name in names):
        for package in ("sentencepiece", "google.protobuf"):
            if _is_missing(package):
                raise HarnessError(
                    f"{folder}: reading {complete[0][0]} needs a package that is not installed: pip install "
                    f"{package.replace('google.', '')}"
                )


def _is_missing(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is None
    except ModuleNotFoundError:
        return True
