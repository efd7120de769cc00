"""Locate the files of a transformer checkpoint: a local folder or a model on the Hugging Face hub.

A hub name (``owner/model``, or ``owner/model@revision``) is looked up in the hub client's local cache first
and downloaded only if it is not complete there: configuration, tokenizer and weights (safetensors if
available, otherwise PyTorch files), nothing else of the repository. Imports neither torch nor transformers.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.encoders.transformer.files import checkpoint_files, required_files
from harness.errors import HarnessError

TIMEOUT = 5.0
"""Seconds to wait for the hub's first response."""
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
        files = required_files(sizes, f"{name} (on the hub)")
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
