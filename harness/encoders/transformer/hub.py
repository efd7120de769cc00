"""Locate the files of a transformer checkpoint: a local folder or a model on the Hugging Face hub.

A hub name (``owner/model``, or ``owner/model@revision``) is looked up in the hub client's local cache first
and downloaded only if it is not complete there: configuration, tokenizer and weights (safetensors if
available, otherwise PyTorch files), nothing else of the repository. Imports neither torch nor transformers.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.errors import HarnessError

CONFIG = "config.json"
TOKENIZER_SETS = (
    ("tokenizer.json",),
    ("vocab.txt",),
    ("vocab.json", "merges.txt"),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
    ("tokenizer.model",),
)
"""Sets of files, best first, each of which is a complete tokenizer."""
TOKENIZER_EXTRAS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TIMEOUT = 5.0
"""Seconds to wait for the hub's first response."""
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.(safetensors|bin)$")
_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$")
_REASONS = {
    "OfflineModeIsEnabled": "not on this machine, and the hub is disabled (HF_HUB_OFFLINE)",
    "GatedRepoError": "access must be requested on its hub page first; then set HF_TOKEN",
    "RepositoryNotFoundError": "neither a folder nor a model on the hub (if it is private, set HF_TOKEN)",
    "RevisionNotFoundError": "the hub has no such revision of this model",
}


def encoder_files(config: Mapping[str, object], cache_dir: Path) -> dict[str, Path]:
    """Return the files that determine the encoder's output, by file name; download them if necessary.

    Raises:
        HarnessError: no such folder, an incomplete checkpoint, or an unreachable hub.
    """
    path = config.get("path")
    return checkpoint_files(local_folder(None if path is None else str(path), cache_dir))


def local_folder(path: str | os.PathLike[str] | None, cache_dir: Path) -> Path:
    """Return the folder of a checkpoint given by folder or hub name.

    ``cache_dir`` is unused: hub checkpoints stay in the hub client's cache (``HF_HOME``), which other
    programs share.

    Raises:
        HarnessError: see :func:`encoder_files`.
    """
    if path is None or not str(path).strip():
        raise HarnessError("encoder.path is not set: give the checkpoint's folder or its hub name")
    text = str(path)
    folder = Path(text).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if folder.exists():
        raise HarnessError(f"encoder.path={text} is a file: give the folder that contains it")
    name, _, revision = text.partition("@")
    if not _NAME.match(name):
        raise HarnessError(f"encoder.path={text}: no such folder, and not a valid hub name")
    return _snapshot(name, revision or None)


def checkpoint_files(folder: Path) -> dict[str, Path]:
    """Return configuration, weights and tokenizer of a checkpoint's folder, by file name.

    Raises:
        HarnessError: one of the three is missing; the message lists the files in the folder.
    """
    files = {p.name: p for p in folder.iterdir() if p.is_file()}
    return {name: files[name] for name in _required(files, str(folder))}


def _required(names: Iterable[str], checkpoint: str) -> list[str]:
    """Select the files to load among ``names``: configuration, one format of weights, one tokenizer."""
    names = set(names)
    weights, tokenizer = _weights(names), _tokenizer(names)
    parts = {
        CONFIG: CONFIG in names,
        "weights (model.safetensors or pytorch_model.bin)": weights,
        "tokenizer (tokenizer.json, vocab.txt, or vocab.json with merges.txt)": tokenizer,
    }
    missing = [part for part, present in parts.items() if not present]
    if missing:
        listed = ", ".join(sorted(names)[:20]) or "nothing"
        raise HarnessError(f"{checkpoint}: no {' and no '.join(missing)}; it contains {listed}")
    return sorted({CONFIG, *weights, *tokenizer})


def _weights(names: set[str]) -> list[str]:
    """Return the weight files to load: one format, a single file or all shards with their index."""
    for stem, extension in (("model", "safetensors"), ("pytorch_model", "bin")):
        if f"{stem}.{extension}" in names:
            return [f"{stem}.{extension}"]
        index = f"{stem}.{extension}.index.json"
        shards = [n for n in names if n.startswith(f"{stem}-") and _SHARD.search(n) and n.endswith(extension)]
        if index in names and shards:
            return [index, *sorted(shards)]
    return []


def _tokenizer(names: set[str]) -> list[str]:
    for files in TOKENIZER_SETS:
        if names.issuperset(files):
            return [*files, *(n for n in TOKENIZER_EXTRAS if n in names)]
    return []


def _snapshot(name: str, revision: str | None) -> Path:
    """Return the cached snapshot of a hub model if it is complete; otherwise download it."""
    try:
        import huggingface_hub as hub
    except ImportError as e:
        raise HarnessError(f"{name}: huggingface_hub is not installed, set encoder.path=DIR") from e
    try:
        cached = Path(hub.snapshot_download(name, revision=revision, local_files_only=True))
        checkpoint_files(cached)
        return cached
    except Exception:  # missing or incomplete: the download below reports the reason
        pass
    try:
        info = hub.HfApi().model_info(name, revision=revision, timeout=TIMEOUT, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
        files = _required(sizes, f"{name} (on the hub)")
        megabytes = sum(sizes[file] for file in files) / 1e6
        print(
            f"{name}: downloading {megabytes:.0f} MB to {hub.constants.HF_HUB_CACHE}",
            file=sys.stderr,
            flush=True,
        )
        folder = hub.snapshot_download(name, revision=revision, allow_patterns=files, etag_timeout=TIMEOUT)
    except HarnessError:
        raise
    except Exception as e:
        first = (str(e).strip().splitlines() or [""])[0][:200]
        kind = type(e).__name__
        reason = _REASONS.get(kind, f"not on this machine, and the hub cannot be reached ({kind}: {first})")
        raise HarnessError(f"{name}: {reason}; download it elsewhere and set encoder.path=DIR") from e
    checkpoint_files(Path(folder))
    return Path(folder)
