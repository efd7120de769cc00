"""The published format of ELMo: ``options.json`` and one HDF5 file of weights; torch-free.

With D the width of a character embedding, F the total number of filters, P the width of the projection and C
the number of LSTM cells, the weights are (d = 0 forward, 1 backward; l = layer from 0, k = highway layer from
0):

========================================================  =====================
``char_embed``                                            (261, D)
``CNN/W_cnn_i``, ``CNN/b_cnn_i``                          (1, width, D, n), (n,)
``CNN_high_k/W_carry``, ``CNN_high_k/W_transform``        (F, F)
``CNN_high_k/b_carry``, ``CNN_high_k/b_transform``        (F,)
``CNN_proj/W_proj``, ``CNN_proj/b_proj``                  (F, P), (P,)
``RNN_d/RNN/MultiRNNCell/Celll/LSTMCell/W_0``             (2 P, 4 C), gates i, j, f, o
``RNN_d/RNN/MultiRNNCell/Celll/LSTMCell/B``               (4 C,)
``RNN_d/RNN/MultiRNNCell/Celll/LSTMCell/W_P_0``           (C, P)
========================================================  =====================

``n_characters`` is 261, or 262 if the padding row is counted, which the file omits. A file that contains this
row (zeros, first) is accepted as well. ``CNN_proj`` may be missing if F = P.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from harness.encoders.download import about_of, existing_file, fetch
from harness.encoders.json_files import read_json_object
from harness.errors import HarnessError

N_CHARACTERS = 261
"""256 bytes, the begin and end markers of sentences and of words, and the filler."""
OPTIONS, WEIGHTS = "options", "weights"
ROLES = (OPTIONS, WEIGHTS)
FOLDER_CONTENTS = "options.json and one *weights*.hdf5"
ACTIVATIONS = ("relu", "tanh")
PROJECTION = "CNN_proj/W_proj"
MAX_LAYERS, MAX_SIZE = 1000, 1_000_000
"""Largest numbers of layers, and of cells, filters or characters, that are read."""


class LstmJson(TypedDict):
    """The section ``lstm`` of ``options.json``."""

    cell_clip: float | None
    dim: int
    n_layers: int
    proj_clip: float | None
    projection_dim: int
    use_skip_connections: bool


class CharCnnJson(TypedDict):
    """The section ``char_cnn`` of ``options.json``."""

    activation: str
    embedding: dict[str, int]
    filters: list[list[int]]
    max_characters_per_token: int
    n_characters: int
    n_highway: int


class OptionsJson(TypedDict):
    """The content of ``options.json``."""

    lstm: LstmJson
    char_cnn: CharCnnJson
    dropout: float


@dataclass(frozen=True, slots=True)
class ElmoOptions:
    """The architecture according to ``options.json``.

    Attributes:
        dim: C, number of cells of each LSTM.
        projection_dim: P, width of a token vector and of each direction's states.
        num_layers: number of LSTM layers.
        cell_clip, proj_clip: bounds of the cell and of the projected state; None = not clipped.
        use_skip_connections: whether each LSTM layer except the first adds its input to its output.
        dropout: rate used in pretraining.
        char_dim: D, width of a character embedding.
        filters: (width, number of filters) of each convolution.
        n_highway: number of highway layers after the filters.
        activation: after max-pooling over time: ``relu`` or ``tanh``.
        max_characters: maximum number of characters per token, including its markers.
    """

    dim: int
    projection_dim: int
    num_layers: int
    cell_clip: float | None
    proj_clip: float | None
    use_skip_connections: bool
    dropout: float
    char_dim: int
    filters: tuple[tuple[int, int], ...]
    n_highway: int
    activation: str
    max_characters: int

    @property
    def n_filters(self) -> int:
        """F, the total number of filters."""
        return sum(number for _, number in self.filters)

    def to_json(self) -> OptionsJson:
        """Return the content of ``options.json``."""
        return {
            "lstm": {
                "cell_clip": self.cell_clip,
                "dim": self.dim,
                "n_layers": self.num_layers,
                "proj_clip": self.proj_clip,
                "projection_dim": self.projection_dim,
                "use_skip_connections": self.use_skip_connections,
            },
            "char_cnn": {
                "activation": self.activation,
                "embedding": {"dim": self.char_dim},
                "filters": [list(f) for f in self.filters],
                "max_characters_per_token": self.max_characters,
                "n_characters": N_CHARACTERS + 1,
                "n_highway": self.n_highway,
            },
            "dropout": self.dropout,
        }


def cell_key(direction: int, layer: int, name: str) -> str:
    """Return the key of an LSTM weight."""
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{name}"


def shapes(options: ElmoOptions) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight by key; see the module docstring."""
    o, total = options, options.n_filters
    out: dict[str, tuple[int, ...]] = {"char_embed": (N_CHARACTERS, o.char_dim)}
    for i, (width, number) in enumerate(o.filters):
        out |= {f"CNN/W_cnn_{i}": (1, width, o.char_dim, number), f"CNN/b_cnn_{i}": (number,)}
    for k in range(o.n_highway):
        out |= {f"CNN_high_{k}/{w}": (total, total) for w in ("W_carry", "W_transform")}
        out |= {f"CNN_high_{k}/{b}": (total,) for b in ("b_carry", "b_transform")}
    out |= {PROJECTION: (total, o.projection_dim), "CNN_proj/b_proj": (o.projection_dim,)}
    for d in (0, 1):
        for layer in range(o.num_layers):
            out[cell_key(d, layer, "W_0")] = (2 * o.projection_dim, 4 * o.dim)
            out[cell_key(d, layer, "B")] = (4 * o.dim,)
            out[cell_key(d, layer, "W_P_0")] = (o.dim, o.projection_dim)
    return out


def elmo_files(config: Mapping[str, object], cache_dir: Path) -> dict[str, Path]:
    """Return the files of ELMo (``_files_``), ``options`` and ``weights``; download them if necessary.

    Args:
        config: reads ``files.options`` and ``files.weights``, otherwise ``path`` (a folder), otherwise
            ``url.options`` and ``url.weights`` with the checksums ``sha256.options`` and ``sha256.weights``.
        cache_dir: downloads are stored in its folder ``downloads``.

    Raises:
        HarnessError: missing files, or a folder with several candidates.
    """
    explicit = _by_role(config.get("files"), key="encoder.files")
    out = {role: existing_file(Path(path), key=f"encoder.files.{role}") for role, path in explicit.items()}
    url = _by_role(config.get("url"), key="encoder.url")
    sha256 = _by_role(config.get("sha256"), key="encoder.sha256")
    if config.get("path") is not None:
        folder = _folder(str(config["path"]))
        return {r: out[r] if r in out else in_folder(folder, r) for r in ROLES}
    if any(r not in out and r not in url for r in ROLES):
        raise HarnessError(
            f"encoder {config.get('name', 'elmo')}: its files are not on this machine; set "
            "encoder.path=FOLDER "
            f"(with {FOLDER_CONTENTS}), or encoder.files.options=FILE and encoder.files.weights=FILE"
        )
    size = str(about_of(config).get("size", ""))
    for role in (r for r in ROLES if r not in out):
        out[role] = fetch(
            url[role],
            cache_dir / "downloads",
            sha256=sha256.get(role),
            size=size if role == WEIGHTS else "",
            hint=f"set encoder.path=FOLDER (with {FOLDER_CONTENTS})",
        )
    return {r: out[r] for r in ROLES}


def _folder(path: str) -> Path:
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise HarnessError(f"encoder.path={path} {problem}: expected a folder with {FOLDER_CONTENTS}")
    return folder


def _by_role(value: object, *, key: str) -> dict[str, str]:
    """Return the roles that are set."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or set(value) - set(ROLES):
        raise HarnessError(f"{key}={value!r}: expected {{options: ..., weights: ...}}")
    return {str(role): str(entry) for role, entry in value.items() if entry is not None}


def in_folder(folder: Path, role: str) -> Path:
    """Return the file of a role in a folder: ``options.json`` or ``*options*.json``, and ``*weights*.hdf5``.

    Raises:
        HarnessError: no such file, or several.
    """
    if role == OPTIONS and (folder / "options.json").is_file():
        return folder / "options.json"
    expected = "options.json" if role == OPTIONS else "*weights*.hdf5"
    pattern = "*options*.json" if role == OPTIONS else expected
    candidates = sorted(p for p in folder.glob(pattern) if p.is_file())
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(p.name for p in candidates)
        raise HarnessError(
            f"{folder} contains several {expected} ({names}): choose one with encoder.files.{role}=FILE"
        )
    names = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
    raise HarnessError(
        f"{folder} contains no {expected} (but {names}): expected a folder with {FOLDER_CONTENTS}"
    )


def read_options(path: Path) -> ElmoOptions:
    """Read and check ``options.json``.

    Raises:
        HarnessError: not JSON, a missing key, or an invalid value; the message names the key and the value.
    """
    data = read_json_object(path)
    cnn, lstm = _section(data, "char_cnn", path), _section(data, "lstm", path)
    if _integer(data, ("char_cnn", "n_characters"), path) not in (N_CHARACTERS, N_CHARACTERS + 1):
        raise HarnessError(f"{path}: char_cnn.n_characters={cnn['n_characters']}: expected 261 or 262")
    activation = cnn.get("activation")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise HarnessError(f"{path}: char_cnn.activation={activation!r}: expected relu or tanh")
    skip = lstm.get("use_skip_connections")
    if not isinstance(skip, bool):
        raise HarnessError(f"{path}: lstm.use_skip_connections={skip!r}: expected true or false")
    options = ElmoOptions(
        dim=_integer(data, ("lstm", "dim"), path),
        projection_dim=_integer(data, ("lstm", "projection_dim"), path),
        num_layers=_integer(data, ("lstm", "n_layers"), path, high=MAX_LAYERS),
        cell_clip=_clip_bound(lstm, "cell_clip", path),
        proj_clip=_clip_bound(lstm, "proj_clip", path),
        use_skip_connections=skip,
        dropout=_dropout(data.get("dropout"), path),
        char_dim=_integer(data, ("char_cnn", "embedding", "dim"), path),
        filters=_filters(cnn.get("filters"), path),
        n_highway=_integer(data, ("char_cnn", "n_highway"), path, low=0, high=MAX_LAYERS)
        if cnn.get("n_highway")
        else 0,
        activation=activation,
        max_characters=_integer(data, ("char_cnn", "max_characters_per_token"), path, low=3),
    )
    widest = max(width for width, _ in options.filters)
    if widest > options.max_characters:
        limit = options.max_characters
        raise HarnessError(f"{path}: a filter of width {widest} exceeds max_characters_per_token={limit}")
    return options


def _section(data: object, key: str, path: Path) -> Mapping[str, object]:
    section = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(section, Mapping):
        raise HarnessError(f"{path}: {key} is missing; expected the options of a character-level biLM")
    return section


def _integer(data: object, keys: tuple[str, ...], path: Path, *, low: int = 1, high: int = MAX_SIZE) -> int:
    value = data
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        problem = "is missing" if value is None else f"is {repr(value)[:40]}"
        expected = f"expected an integer of at least {low}, at most {high}"
        raise HarnessError(f"{path}: {'.'.join(keys)} {problem}: {expected}")
    return value


def _clip_bound(lstm: Mapping[str, object], key: str, path: Path) -> float | None:
    value = lstm.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise HarnessError(f"{path}: lstm.{key}={value!r}: expected a number above 0, or null")
    return float(value)


def _dropout(value: object, path: Path) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise HarnessError(f"{path}: dropout={value!r}: expected a number in [0, 1)")
    return float(value)


def _filters(value: object, path: Path) -> tuple[tuple[int, int], ...]:
    try:
        if isinstance(value, list):
            out = tuple((int(width), int(number)) for width, number in value)
            if out and len(out) <= MAX_LAYERS and all(0 < n <= MAX_SIZE for pair in out for n in pair):
                return out
    except (TypeError, ValueError, OverflowError):
        pass
    raise HarnessError(f"{path}: char_cnn.filters={value!r}: expected pairs [width, number]")
