"""Load a transformer checkpoint completely, or fail; weights are never silently left random."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.core.fingerprint import data_fingerprint, files_fingerprint
from harness.encoders.transformer.checks import inspect_checkpoint, weight_bytes, wrong_family
from harness.encoders.transformer.encoder import TransformerEncoder
from harness.encoders.transformer.fast_tokenizer import load_tokenizer
from harness.encoders.transformer.files import CONFIG, checkpoint_files, first_line, loading_folder
from harness.encoders.transformer.hub import local_folder
from harness.encoders.transformer.load_report import POOLER, LoadReport
from harness.errors import HarnessError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

POOLER_ALLOWANCE = 10_000_000
"""Parameters that a model may have although its file lacks them: a pooler."""


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
    inspect_checkpoint(folder, files, causal=causal)
    with loading_folder(files) as view:
        config = _config(view, folder)
        _check_parameters(config, folder, files)
        model = (
            _random_model(config, folder) if random_init else _pretrained_model(config, view, folder, files)
        )
        tokenizer = load_tokenizer(view, folder, files, model)
    config._name_or_path = str(folder)

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
        source=str(folder),
    )
    if encoder.structure.causal != causal:
        raise HarnessError(wrong_family(folder, config.model_type, causal=encoder.structure.causal))
    return encoder.train()


def _config(view: Path, folder: Path) -> PretrainedConfig:
    from transformers import AutoConfig

    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(
            str(view), local_files_only=True, trust_remote_code=False
        )
    except Exception as e:
        reason = first_line(e, view=view, folder=folder)
        raise HarnessError(f"{folder / CONFIG}: not the configuration of a supported model ({reason})") from e
    if config.is_encoder_decoder:
        raise HarnessError(
            f"{folder}: {config.model_type} is an encoder-decoder; expected an encoder (BERT) or a decoder "
            "(GPT)"
        )
    config.use_cache = False
    return config


def _check_parameters(config: PretrainedConfig, folder: Path, files: Mapping[str, Path]) -> None:
    """Refuse a configuration with more parameters than the weights' files can contain, before memory is
    allocated for them."""
    from transformers import AutoModel

    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = AutoModel.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    except Exception:
        return  # reported when the model is built
    parameters, size = sum(p.numel() for p in model.parameters()), weight_bytes(files)
    if parameters > 2 * size + POOLER_ALLOWANCE:
        raise HarnessError(
            f"{folder}: config.json describes a {config.model_type} of {parameters:,} parameters, "
            f"but its weights "
            f"have {size:,} bytes: they are not of one model"
        )


def _random_model(config: PretrainedConfig, folder: Path) -> PreTrainedModel:
    from transformers import AutoModel

    try:
        model: PreTrainedModel = AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)  # type: ignore[no-untyped-call]
    except ValueError as e:
        raise HarnessError(f"{folder}: AutoModel does not support {config.model_type} ({e})") from e
    _drop_pooler(model)
    return model


def _pretrained_model(
    config: PretrainedConfig, view: Path, folder: Path, files: Mapping[str, Path]
) -> PreTrainedModel:
    """Load the model with the checkpoint's weights, and with a pooler only if the checkpoint contains it."""
    from transformers import AutoModel

    try:
        # restore the generator: later draws must not depend on the number of missing weights
        with _quiet(), torch.random.fork_rng(devices=[]):
            loaded: tuple[PreTrainedModel, dict[str, Any]] = AutoModel.from_pretrained(
                str(view),
                config=config,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=any(n.endswith(".safetensors") for n in files),
                weights_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as e:
        reason = first_line(e, view=view, folder=folder)
        raise HarnessError(f"{folder}: the weights cannot be read ({type(e).__name__}: {reason})") from e
    model, info = loaded
    report = LoadReport(
        missing=frozenset(info["missing_keys"]),
        mismatched=frozenset(key[0] for key in info["mismatched_keys"]),
        unexpected=frozenset(info["unexpected_keys"]),
    )
    if not report.has_pooler:
        _drop_pooler(model)
    report.check(model, folder)
    return model


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
