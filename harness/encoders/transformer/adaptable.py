"""Which transformers cannot continue their pretraining objective; torch-free."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from harness.encoders.transformer.hub import CONFIG, local_folder
from harness.errors import HarnessError


def reason_against(options: Mapping[str, object]) -> str | None:
    """Why a checkpoint cannot be adapted: it is ELECTRA's discriminator, by its ``config.json``; else None.

    Args:
        options: of the encoder; reads ``path``.
    """
    path = options.get("path")
    try:
        folder = local_folder(None if path is None else str(path), Path())
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (HarnessError, OSError, ValueError):
        return None  # the encoder's loader reports it
    architectures = " ".join(config.get("architectures") or ())
    if config.get("model_type") != "electra" or "MaskedLM" in architectures:
        return None
    return "was pretrained to detect replaced tokens, and its checkpoint lacks the generator of replacements"
