"""The files of an AWD-LSTM: finding them and reading words, torch-free. See
:mod:`harness.encoders.awd_lstm.checkpoint` for the weights.

=============  ===================================================================================
weights        ``.safetensors`` (ours); ``.pth``, ``.h5`` (both torch files) of fastai: a language model
               or an encoder alone, bare or in ``{"model": ..., "opt": ...}``, any of its key names
vocabulary     ``.json``, ``.txt`` (a word a line) or ``.pkl`` (fastai's ``itos``): the words in the order of
               the table's rows
``options.json``  ours, optional: ``{"backwards": false}``
=============  ===================================================================================
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.encoders.config import EncoderConfig
from harness.encoders.download import existing_file
from harness.errors import HarnessError

WEIGHTS = (".safetensors", ".pth", ".pt", ".h5")
VOCABULARY = (".json", ".pkl", ".txt")
OPTIONS = "options.json"
BESIDE = (OPTIONS, "pretrain.json")
"""JSON files of a folder that hold no words."""


def awd_lstm_files(config: Mapping[str, Any], cache_dir: Path) -> dict[str, Path]:
    """``weights``, ``vocabulary`` and, if there are any, ``options`` of an encoder.

    Args:
        config: ``path``, a folder that holds one file of weights and one of words, or ``files`` with
            ``weights`` and ``vocabulary``.
        cache_dir: unused; nothing is downloaded.

    Raises:
        HarnessError: a file is missing, or a folder holds several that it could be.
    """
    name, explicit = config.get("name", "ulmfit"), config.get("files")
    about = config.get("about") or {}
    if explicit:
        return _explicit(explicit)
    if config.get("path") is None:
        where = f" ({about['where']})" if about.get("where") else ""
        raise HarnessError(
            f"encoder {name}: its files are not on this machine{where}; give encoder.path=DIR with the "
            "weights (.pth or .safetensors) and the words (.pkl or .json)"
        )
    folder = Path(str(config["path"])).expanduser().absolute()
    if folder.is_file():
        return _beside(folder)
    if not folder.is_dir():
        raise HarnessError(f"encoder.path={folder}: there is no such folder")
    return _of_folder(folder)


def _explicit(files: Mapping[str, Any]) -> dict[str, Path]:
    roles = {"weights", "vocabulary", "options"}
    unknown = set(files) - roles
    if unknown or not {"weights", "vocabulary"} <= set(files):
        raise HarnessError(
            f"encoder.files={dict(files)}: weights and vocabulary are wanted, and at most options beside them"
        )
    return {
        k: existing_file(Path(str(v)), key=f"encoder.files.{k}") for k, v in files.items() if v is not None
    }


def _beside(weights: Path) -> dict[str, Path]:
    """The folder's files, with these weights."""
    vocabulary = _one(weights.parent, VOCABULARY, what="words (itos)")
    found = {"weights": weights, "vocabulary": vocabulary}
    options = weights.parent / OPTIONS
    return found | ({"options": options} if options.is_file() else {})


def _of_folder(folder: Path) -> dict[str, Path]:
    return _beside(_one(folder, WEIGHTS, what="weights"))


def _one(folder: Path, endings: Sequence[str], *, what: str) -> Path:
    found = sorted(
        p for p in folder.iterdir() if p.suffix in endings and p.is_file() and p.name not in BESIDE
    )
    if len(found) == 1:
        return found[0]
    names = ", ".join(p.name for p in found) or "none"
    raise HarnessError(
        f"{folder}: one file of {what} is wanted ({', '.join(endings)}), there are: {names}; "
        "give encoder.files={weights: FILE, vocabulary: FILE}"
    )


def read_backwards(path: Path | None) -> bool | None:
    """Whether the options say that the model reads from right to left; None = they do not say."""
    if path is None:
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8")).get("backwards")
    except (ValueError, AttributeError) as e:
        raise HarnessError(f'{path}: an object such as {{"backwards": false}} is wanted ({e})') from e
    if value is not None and not isinstance(value, bool):
        raise HarnessError(f"{path}: backwards={value!r}, but true or false is wanted")
    return value


class _L:
    """Stands for fastcore's list ``L``, whose state holds the items; nothing of it is called."""

    items: Any = None

    def __new__(cls, *_: Any, **__: Any) -> _L:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.items = state.get("items") if isinstance(state, dict) else None


class _Strings(pickle.Unpickler):
    """Lists and strings: no name is ever looked up, but for that of fastcore's list."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("fastcore.foundation", "L"):
            return _L
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_vocabulary(path: Path) -> list[str]:
    """Words in the order of the table's rows.

    Raises:
        HarnessError: it is not a list of strings; a pickle that holds anything else is not opened further.
    """
    data = path.read_bytes()
    words: Any
    try:
        if path.suffix == ".pkl":
            words = _Strings(io.BytesIO(data)).load()
        elif path.suffix == ".json":
            words = json.loads(data)
        else:
            words = data.decode("utf-8").removesuffix("\n").split("\n")
    except Exception as e:
        raise HarnessError(
            f"{path}: not a list of words that can be read safely ({e}); write it as JSON: "
            "json.dump(list(itos), file)"
        ) from e
    if isinstance(words, _L):
        words = words.items
    if isinstance(words, dict):
        words = words.get("itos")
    if not isinstance(words, list | tuple) or not words:
        raise HarnessError(f"{path}: a list of words is wanted, found a {type(words).__name__}")
    for row, word in enumerate(words):
        if not isinstance(word, str):
            raise HarnessError(f"{path}: entry {row} is {word!r}, not a word")
    return list(words)


def bidirectional_files(config: Mapping[str, Any], cache_dir: Path) -> dict[str, Path]:
    """The files of both directions, by ``forward.role`` and ``backward.role``.

    Raises:
        HarnessError: see :func:`awd_lstm_files` and :func:`the_directions`.
    """
    return {
        f"{key}.{role}": path
        for key, member in the_directions(config.get("members")).items()
        for role, path in awd_lstm_files(member.file_arguments(), cache_dir).items()
    }


def the_directions(members: object) -> dict[str, EncoderConfig]:
    """The configurations of ``forward`` and ``backward``.

    Raises:
        HarnessError: one of them is missing.
    """
    parsed = members if isinstance(members, Mapping) else {}
    out: dict[str, EncoderConfig] = {}
    for key in ("forward", "backward"):
        member = parsed.get(key)
        if not isinstance(member, EncoderConfig):
            raise HarnessError(
                f"encoder.members.{key}={member!r}: an AWD-LSTM is wanted; choose one with "
                f"encoder@encoder.members.{key}=ulmfit"
            )
        out[key] = member
    return out
