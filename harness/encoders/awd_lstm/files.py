"""The files of an AWD-LSTM: locate them and read the vocabulary; torch-free.

The weights are read by :mod:`harness.encoders.awd_lstm.checkpoint`.

=============  ===================================================================================
weights        ``.safetensors`` (ours); ``.pth``, ``.h5`` (both torch files) of fastai: a language model
               or only its encoder, plain or in ``{"model": ..., "opt": ...}``, any of its key names
vocabulary     ``.json``, ``.txt`` (one word per line) or ``.pkl`` (fastai's ``itos``): the words in the order
of
               the table's rows
``options.json``  ours, optional: ``{"backwards": false}``
=============  ===================================================================================
"""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.encoders.config import EncoderConfig
from harness.encoders.download import about_of, existing_file
from harness.encoders.facts import EncoderFacts
from harness.encoders.json_files import read_json_object
from harness.errors import HarnessError, did_you_mean

WEIGHTS = (".safetensors", ".pth", ".pt", ".h5")
VOCABULARY = (".json", ".pkl", ".txt")
DROPOUTS = ("embedding", "input", "hidden", "weight", "output")
"""Keys of ``encoder.dropouts``."""
OPTIONS = "options.json"
BESIDE = (OPTIONS, "pretrain.json")
"""JSON files of a folder that are not vocabularies."""


def awd_lstm_files(config: Mapping[str, object], cache_dir: Path) -> dict[str, Path]:
    """Return ``weights``, ``vocabulary`` and, if present, ``options`` of an encoder.

    Args:
        config: ``path``, a folder with one weights file and one vocabulary, or ``files`` with ``weights`` and
            ``vocabulary``.
        cache_dir: unused; nothing is downloaded.

    Raises:
        HarnessError: a missing file, or a folder with several candidates.
    """
    name, explicit, about = config.get("name", "ulmfit"), config.get("files"), about_of(config)
    dropouts = config.get("dropouts")
    for key in dropouts if isinstance(dropouts, Mapping) else ():
        if key not in DROPOUTS:
            raise HarnessError(f"encoder.dropouts.{key}: unknown key, {did_you_mean(str(key), DROPOUTS)}")
    if isinstance(explicit, Mapping) and explicit:
        return _explicit(explicit)
    if config.get("path") is None:
        where = f" ({about['where']})" if about.get("where") else ""
        raise HarnessError(
            f"encoder {name}: its files are not on this machine{where}; set encoder.path=DIR with the "
            "weights (.pth or .safetensors) and the vocabulary (.pkl or .json)"
        )
    folder = Path(str(config["path"])).expanduser().absolute()
    if folder.is_file():
        return _beside(folder)
    if not folder.is_dir():
        raise HarnessError(f"encoder.path={folder}: no such folder")
    return _of_folder(folder)


def _explicit(files: Mapping[str, object]) -> dict[str, Path]:
    roles = {"weights", "vocabulary", "options"}
    unknown = set(files) - roles
    if unknown or not {"weights", "vocabulary"} <= set(files):
        raise HarnessError(
            f"encoder.files={dict(files)}: expected weights and vocabulary, and optionally options"
        )
    return {
        k: existing_file(Path(str(v)), key=f"encoder.files.{k}") for k, v in files.items() if v is not None
    }


def _beside(weights: Path) -> dict[str, Path]:
    """Return the files of the folder of these weights."""
    vocabulary = _one(weights.parent, VOCABULARY, what="vocabulary (itos)")
    files = {"weights": weights, "vocabulary": vocabulary}
    options = weights.parent / OPTIONS
    return files | ({"options": options} if options.is_file() else {})


def _of_folder(folder: Path) -> dict[str, Path]:
    return _beside(_one(folder, WEIGHTS, what="weights"))


def _one(folder: Path, extensions: Sequence[str], *, what: str) -> Path:
    candidates = sorted(
        p for p in folder.iterdir() if p.suffix in extensions and p.is_file() and p.name not in BESIDE
    )
    if len(candidates) == 1:
        return candidates[0]
    names = ", ".join(p.name for p in candidates) or "none"
    raise HarnessError(
        f"{folder}: expected one file of {what} ({', '.join(extensions)}), found: {names}; "
        "set encoder.files={weights: FILE, vocabulary: FILE}"
    )


def read_backwards(path: Path | None) -> bool | None:
    """Return whether the options state that the model reads from right to left; None = not stated."""
    if path is None:
        return None
    try:
        value = read_json_object(path).get("backwards")
    except HarnessError as e:
        raise HarnessError(f'{path}: expected an object such as {{"backwards": false}} ({e})') from e
    if value is not None and not isinstance(value, bool):
        raise HarnessError(f"{path}: backwards={value!r}: expected true or false")
    return value


class _L:
    """Replaces fastcore's list ``L`` in pickles; only its state, which contains the items, is read."""

    items: object = None

    def __new__(cls, *_: object, **__: object) -> _L:
        return super().__new__(cls)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.items = state.get("items") if isinstance(state, dict) else None


class _StringUnpickler(pickle.Unpickler):
    """Reads lists and strings: no name is looked up except that of fastcore's list."""

    def find_class(self, module: str, name: str) -> type[_L]:
        if (module, name) == ("fastcore.foundation", "L"):
            return _L
        raise pickle.UnpicklingError(f"the file requires {module}.{name}")


def read_vocabulary(path: Path) -> list[str]:
    """Read the words in the order of the table's rows.

    Raises:
        HarnessError: not a list of strings; a pickle with other content is not read further.
    """
    data = path.read_bytes()
    words: object
    try:
        if path.suffix == ".pkl":
            words = _StringUnpickler(io.BytesIO(data)).load()
        elif path.suffix == ".json":
            words = json.loads(data)
        else:
            words = data.decode("utf-8").removesuffix("\n").split("\n")
    except Exception as e:
        raise HarnessError(
            f"{path}: not a list of words that can be read safely ({e}); save it as JSON: "
            "json.dump(list(itos), file)"
        ) from e
    if isinstance(words, _L):
        words = words.items
    if isinstance(words, dict):
        words = words.get("itos")
    if not isinstance(words, list | tuple) or not words:
        raise HarnessError(f"{path}: expected a list of words, found a {type(words).__name__}")
    checked: list[str] = []
    for row, word in enumerate(words):
        if not isinstance(word, str):
            raise HarnessError(f"{path}: entry {row} is {word!r}, not a word")
        checked.append(word)
    return checked


def check_awd_lstm(config: Mapping[str, object], cache_dir: Path) -> EncoderFacts:
    """Check vocabulary and options, and count the layers by the names in the file of weights (``_check_``).

    Raises:
        HarnessError: files that are missing or cannot be read.
    """
    files = awd_lstm_files(config, cache_dir)
    read_vocabulary(files["vocabulary"])
    read_backwards(files.get("options"))
    layers = {int(number) for number in _LAYER.findall(_names_of_tensors(files["weights"]))}
    return EncoderFacts(num_layers=max(layers) + 1 if layers else None)


_LAYER = re.compile(rb"rnns\.(\d{1,4})\.")
_HEAD = 1 << 20


def _names_of_tensors(path: Path) -> bytes:
    """Return the part of a file of weights that contains the names: the header or the pickle."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = [i for i in archive.infolist() if i.filename.endswith("data.pkl")]
                return archive.open(names[0]).read(_HEAD) if names else b""
        with path.open("rb") as f:
            return f.read(_HEAD)
    except (OSError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error) as e:
        raise HarnessError(f"{path}: cannot be read ({e}); download it again") from e


def bidirectional_files(config: Mapping[str, object], cache_dir: Path) -> dict[str, Path]:
    """The files of both directions, by ``forward.role`` and ``backward.role``.

    Raises:
        HarnessError: see :func:`awd_lstm_files` and :func:`direction_configs`.
    """
    return {
        f"{key}.{role}": path
        for key, member in direction_configs(config.get("members")).items()
        for role, path in awd_lstm_files(member.file_arguments(), cache_dir).items()
    }


def direction_configs(members: object) -> dict[str, EncoderConfig]:
    """Return the configurations of ``forward`` and ``backward``.

    Raises:
        HarnessError: a missing member.
    """
    parsed = members if isinstance(members, Mapping) else {}
    out: dict[str, EncoderConfig] = {}
    for key in ("forward", "backward"):
        member = parsed.get(key)
        if not isinstance(member, EncoderConfig):
            raise HarnessError(
                f"encoder.members.{key}={member!r}: expected an AWD-LSTM; choose one with "
                f"encoder@encoder.members.{key}=ulmfit"
            )
        out[key] = member
    return out
