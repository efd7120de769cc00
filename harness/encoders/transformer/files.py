"""The files of a transformer checkpoint; torch-free.

:func:`checkpoint_files` is the only list of them: it is fingerprinted, and :func:`loading_folder` shows these
files and no others to ``transformers``, so that every file that is opened is part of the cell id.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.encoders.json_files import read_json_object
from harness.errors import HarnessError

CONFIG, VOCABULARY, TOKENIZER_CONFIG = "config.json", "vocab.txt", "tokenizer_config.json"
TOKENIZER_SETS = (
    ("tokenizer.json",),
    (VOCABULARY,),
    ("vocab.json", "merges.txt"),
    ("spiece.model",),
    ("spm.model",),
    ("sentencepiece.bpe.model",),
    ("sentencepiece.model",),
    ("tokenizer.model",),
)
"""Sets of files each of which is a complete tokenizer."""
TOKENIZER_EXTRAS = (
    TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "bpe.codes",
    "emoji.json",
    "entity_vocab.json",
    "word_shape.json",
    "word_pronunciation.json",
)
"""Further files that a tokenizer of ``transformers`` reads."""
TOKENIZER_FILES = (*dict.fromkeys(name for names in TOKENIZER_SETS for name in names), *TOKENIZER_EXTRAS)
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.(safetensors|bin)$")


def checkpoint_files(folder: Path) -> dict[str, Path]:
    """Return configuration, weights and tokenizer of a checkpoint's folder, by file name.

    Of sharded weights these are the files that the index names. All tokenizer files are included, since
    the tokenizer's class decides which of them it reads.

    Raises:
        HarnessError: one of the three is missing, or the configuration or index names files elsewhere; the
            message lists the files in the folder.
    """
    present = {p.name: p for p in folder.iterdir() if p.is_file()}
    names = required_files(present, str(folder))
    for index in (name for name in names if name.endswith(".index.json")):
        listed = [n for n in names if not _SHARD.search(n)]
        names = sorted({*listed, *_shards(present[index], present)})
    return {name: present[name] for name in names}


def required_files(names: Iterable[str], checkpoint: str) -> list[str]:
    """Select the files to load among ``names``: configuration, one format of weights, tokenizer.

    Raises:
        HarnessError: one of the three is missing, or the folder is an adapter's.
    """
    names = set(names)
    weights, tokenizer = _weights(names), _tokenizer(names)
    if "adapter_config.json" in names:
        raise HarnessError(
            f"{checkpoint}: adapter_config.json: an adapter, not a complete model; merge it into its model "
            "(merge_and_unload), save that, and give its folder"
        )
    parts = {
        CONFIG: CONFIG in names,
        "weights (model.safetensors or pytorch_model.bin)": weights,
        "tokenizer (tokenizer.json, vocab.txt, vocab.json with merges.txt, or a .model)": tokenizer,
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


def _shards(index: Path, present: Mapping[str, Path]) -> set[str]:
    """Return the files that an index names; each must be in its folder."""
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, Mapping) or not weight_map:
        raise HarnessError(f"{index}: no weight_map; expected the file of each weight")
    shards = {str(name) for name in weight_map.values()}
    for name in sorted(shards):
        if name not in present:
            raise HarnessError(
                f"{index}: names the file {name}, which is not in this folder; download the checkpoint again"
            )
        if not name.endswith((".safetensors", ".bin")):
            raise HarnessError(f"{index}: names {name}, which is no file of weights")
    return shards


def _tokenizer(names: set[str]) -> list[str]:
    if not any(names.issuperset(files) for files in TOKENIZER_SETS):
        return []
    return [name for name in TOKENIZER_FILES if name in names]


@contextmanager
def loading_folder(files: Mapping[str, Path]) -> Iterator[Path]:
    """Yield a temporary folder that contains links to ``files`` and nothing else.

    A blank last line of ``vocab.txt``, which would count as a piece, is left out.
    """
    with tempfile.TemporaryDirectory(prefix="harness-checkpoint-") as temporary:
        for name, path in files.items():
            data = path.read_bytes() if name == VOCABULARY else b""
            if data.endswith((b"\n\n", b"\r\n\r\n", b"\n\r\n")):
                (Path(temporary) / name).write_bytes(data.rstrip(b"\r\n") + b"\n")
            else:
                (Path(temporary) / name).symlink_to(path.resolve())
        yield Path(temporary)


def first_line(error: BaseException, *, view: Path, folder: Path) -> str:
    """Return the first line of an error's text, with the checkpoint's folder in place of the
    temporary one."""
    lines = [line.strip() for line in str(error).replace(str(view), str(folder)).splitlines()]
    return next((line for line in lines if line), type(error).__name__)[:300]
