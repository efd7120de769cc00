"""Where a checkpoint's files are: a directory, or a model hub's name through the hub's local cache.

A directory is taken as it is. A name (``owner/model``, or ``owner/model@revision``) is looked up in the hub
client's cache on this machine first and downloaded only when it is not there: configuration, tokenizer and
weights (safetensors where there are any, else PyTorch's own files), nothing else of the repository. Imports
neither torch nor transformers.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

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
"""Files any one set of which makes a tokenizer, best first."""
TOKENIZER_EXTRAS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
PATIENCE = 5.0
"""Seconds to wait for the hub's first answer."""
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.(safetensors|bin)$")
_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$")


def encoder_files(config: Mapping[str, Any], cache_dir: Path) -> dict[str, Path]:
    """The files that decide what the encoder ``config`` computes, by file name; downloaded when need be.

    Raises:
        HarnessError: no such directory, an incomplete one, or a hub that cannot be reached.
    """
    folder = local_folder(config.get("path"), cache_dir)
    return checkpoint_files(folder)


def local_folder(path: str | os.PathLike[str] | None, cache_dir: Path) -> Path:
    """The directory behind a directory or hub name. ``cache_dir`` is where the harness keeps its own files;
    checkpoints stay in the hub client's cache (``HF_HOME``), which other programs share.

    Raises:
        HarnessError: see :func:`encoder_files`.
    """
    if path is None or not str(path).strip():
        raise HarnessError("encoder.path is not set: give the checkpoint's directory or its hub name")
    text = str(path)
    folder = Path(text).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if folder.exists():
        raise HarnessError(f"encoder.path={text} is a file: give the directory that holds it")
    name, _, revision = text.partition("@")
    if not _NAME.match(name):
        raise HarnessError(f"encoder.path={text}: there is no such directory, and it is not a hub name")
    return _from_hub(name, revision or None)


def checkpoint_files(folder: Path) -> dict[str, Path]:
    """Configuration, weights and tokenizer of a checkpoint's directory, by file name.

    Raises:
        HarnessError: one of the three is not there; the message lists what is.
    """
    there = {p.name: p for p in folder.iterdir() if p.is_file()}
    weights, tokenizer = _weights(there), _tokenizer(there)
    missing = [
        what
        for what, found in (
            (CONFIG, CONFIG in there),
            ("weights (model.safetensors or pytorch_model.bin)", weights),
            ("tokenizer (tokenizer.json, vocab.txt, or vocab.json with merges.txt)", tokenizer),
        )
        if not found
    ]
    if missing:
        listed = ", ".join(sorted(there)[:20]) or "nothing"
        raise HarnessError(f"{folder}: no {' and no '.join(missing)}; it holds {listed}")
    return {name: there[name] for name in sorted({CONFIG, *weights, *tokenizer})}


def _weights(names: Iterable[str]) -> list[str]:
    """The weight files to read among ``names``: one format, whole or all its shards with their index."""
    names = set(names)
    for stem, ending in (("model", "safetensors"), ("pytorch_model", "bin")):
        if f"{stem}.{ending}" in names:
            return [f"{stem}.{ending}"]
        index = f"{stem}.{ending}.index.json"
        shards = [n for n in names if n.startswith(f"{stem}-") and _SHARD.search(n) and n.endswith(ending)]
        if index in names and shards:
            return [index, *sorted(shards)]
    return []


def _tokenizer(names: Iterable[str]) -> list[str]:
    names = set(names)
    for files in TOKENIZER_SETS:
        if names.issuperset(files):
            return [*files, *(n for n in TOKENIZER_EXTRAS if n in names)]
    return []


def _from_hub(name: str, revision: str | None) -> Path:
    """The snapshot of a hub model: the cached one, when it is complete, else downloaded."""
    try:
        import huggingface_hub as hub
    except ImportError as e:
        raise HarnessError(f"{name}: huggingface_hub is not installed, give encoder.path=DIR") from e
    cached = _cached(hub, name, revision)
    if cached is not None:
        return cached
    wanted, size = _listing(hub, name, revision)
    place = hub.constants.HF_HUB_CACHE
    print(f"{name}: downloading {size / 1e6:.0f} MB to {place}", file=sys.stderr, flush=True)
    try:
        folder = hub.snapshot_download(
            name, revision=revision, allow_patterns=wanted, etag_timeout=PATIENCE, max_workers=4
        )
    except Exception as e:
        raise _unreachable(name, e) from e
    checkpoint_files(Path(folder))
    return Path(folder)


def _cached(hub: Any, name: str, revision: str | None) -> Path | None:
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, local_files_only=True))
        checkpoint_files(folder)
    except Exception:  # not there or not complete; the download says what is wrong
        return None
    return folder


def _listing(hub: Any, name: str, revision: str | None) -> tuple[list[str], int]:
    """The files to download and their bytes in all."""
    try:
        info = hub.HfApi().model_info(name, revision=revision, timeout=PATIENCE, files_metadata=True)
    except Exception as e:
        raise _unreachable(name, e) from e
    sizes = {f.rfilename: f.size or 0 for f in info.siblings or []}
    weights, tokenizer = _weights(sizes), _tokenizer(sizes)
    if CONFIG not in sizes or not weights or not tokenizer:
        listed = ", ".join(sorted(sizes)[:20]) or "nothing"
        raise HarnessError(f"{name}: the hub's files make no checkpoint that can be read here: {listed}")
    wanted = sorted({CONFIG, *weights, *tokenizer})
    return wanted, sum(sizes[n] for n in wanted)


def _unreachable(name: str, error: Exception) -> HarnessError:
    kind = type(error).__name__
    mend = "fetch it elsewhere and give encoder.path=DIR"
    if kind == "OfflineModeIsEnabled":
        why = "it is not on this machine, and the hub is switched off (HF_HUB_OFFLINE)"
    elif kind == "GatedRepoError":
        why = "its owner wants to be asked first; do so on its page and set HF_TOKEN"
    elif kind in ("RepositoryNotFoundError", "RevisionNotFoundError"):
        why = (
            "the hub knows no such model or revision (or it is private: set HF_TOKEN), nor is it a directory"
        )
    else:
        first = (str(error).strip().splitlines() or [""])[0][:200]
        why = f"it is not on this machine, and the hub cannot be reached ({kind}: {first})"
    return HarnessError(f"{name}: {why}; {mend}")
