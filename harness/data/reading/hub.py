"""Load data sets of the Hugging Face hub as tables with ``datasets``, which is imported only when needed.

A data set with a loading script is read from the hub's Parquet export (``revision="refs/convert/parquet"``),
so that the code of a data set is never executed.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness.data.reading.formats.arrow import of_dataset
from harness.data.reading.table import DataTable
from harness.errors import HarnessError, did_you_mean

if TYPE_CHECKING:
    from datasets import Dataset

PARQUET = "refs/convert/parquet"
TIMEOUT_SECONDS = 10
_COMMIT = re.compile(r"[0-9a-f]{40}")
_USUAL = {"train": ("train",), "dev": ("validation", "dev", "valid"), "test": ("test",)}


def load_hub(
    dataset: str,
    splits: Mapping[str, str] | None = None,
    *,
    config: str | None = None,
    revision: str | None = None,
) -> dict[str, DataTable]:
    """Load tables by role.

    Args:
        dataset: id on the hub, ``owner/name``.
        splits: name of the split for each role (``{"train": "train", "dev": "validation"}``); None =
            the usual names.
        config: the data set's configuration, if it has several.
        revision: branch, tag or commit.

    Raises:
        HarnessError: the hub cannot be reached and nothing is cached, or the data set has no such split.
    """
    loaded = _load(dataset, config, revision)
    tables = {}
    for role, split in (splits or _usual(loaded)).items():
        if split not in loaded:
            raise HarnessError(
                f"hub data set {dataset} has no split {split!r}; {did_you_mean(split, list(loaded))}"
            )
        tables[role] = of_dataset(loaded[split], f"{dataset} ({split})")
    return tables


@functools.cache
def resolve_revision(dataset: str, revision: str | None) -> str | None:
    """Return the commit that a branch or tag of a data set names now; None if it cannot be determined.

    Without a connection it is the commit of the local copy.

    Args:
        dataset: id on the hub.
        revision: branch, tag or commit; None = the main branch, or the Parquet export of a data set with a
            loading script.
    """
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    if os.environ.get("HARNESS_OFFLINE", "0") not in ("", "0"):
        return _local_commit(dataset, revision or "main")
    try:
        from huggingface_hub import HfApi

        info = HfApi().dataset_info(dataset, revision=revision, timeout=TIMEOUT_SECONDS)
        script = f"{dataset.rpartition('/')[2]}.py"
        if revision is None and any(f.rfilename == script for f in info.siblings or ()):
            info = HfApi().dataset_info(dataset, revision=PARQUET, timeout=TIMEOUT_SECONDS)
        return info.sha
    except Exception:  # many kinds; a data set that is not reachable is reported when it is loaded
        return _local_commit(dataset, revision or "main")


def _local_commit(dataset: str, revision: str) -> str | None:
    try:
        from huggingface_hub.constants import HF_HUB_CACHE

        folder = Path(HF_HUB_CACHE) / f"datasets--{dataset.replace('/', '--')}"
        return (folder / "refs" / revision).read_text().strip() or None
    except (ImportError, OSError, ValueError):
        return None


def _usual(loaded: Mapping[str, Dataset]) -> dict[str, str]:
    return {role: name for role, names in _USUAL.items() for name in names[::-1] if name in loaded}


def _load(dataset: str, config: str | None, revision: str | None) -> Mapping[str, Dataset]:
    try:
        return _download(dataset, config, revision)
    except Exception as first:
        if not _is_script(first) or revision:
            raise _readable(dataset, first) from first
    try:
        return _download(dataset, config, PARQUET)
    except Exception as second:
        raise _readable(dataset, second) from second


def _download(dataset: str, config: str | None, revision: str | None) -> Mapping[str, Dataset]:
    import datasets

    loaded: Mapping[str, Dataset] = datasets.load_dataset(dataset, config, revision=revision)
    return loaded


def _is_script(error: Exception) -> bool:
    return isinstance(error, RuntimeError | ValueError | NotImplementedError) and any(
        word in str(error).lower() for word in ("script", "trust_remote_code")
    )


def _readable(dataset: str, error: Exception) -> HarnessError:
    """Convert the many errors of the hub, the network and the cache to one message."""
    lines = str(error).strip().splitlines()
    cause = f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
    return HarnessError(
        f"hub data set {dataset} could not be loaded ({cause}). Without access to the hub, download it on "
        "another machine and set its files: task.path=FOLDER, or task.train=FILE task.test=FILE"
    )
