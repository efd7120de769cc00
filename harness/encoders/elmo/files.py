"""The published format of ELMo: ``options.json`` and one HDF5 file of weights; torch-free.

With D the width of a character, F the sum of all filters, P the projection and C the LSTM's cells, the
weights are (d = 0 forward, 1 backward; l = layer from 0, k = highway layer from 0):

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

``n_characters`` is 261, or 262 where the row of padding, which the file leaves out, is counted. A file that
holds that row (zeros, first) is read, too. ``CNN_proj`` may be missing where F = P.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.encoders.download import existing, fetch
from harness.errors import HarnessError

N_CHARACTERS = 261
"""256 bytes, the marks of a sentence's begin and end and of a word's begin and end, and the filler."""
OPTIONS, WEIGHTS = "options", "weights"
ROLES = (OPTIONS, WEIGHTS)
NAMES = "options.json and one *weights*.hdf5"
ACTIVATIONS = ("relu", "tanh")
PROJECTION = "CNN_proj/W_proj"


@dataclass(frozen=True, slots=True)
class ElmoOptions:
    """What ``options.json`` says of the architecture.

    Attributes:
        dim: C, cells of each LSTM.
        projection_dim: P, width of a token and of each direction's states.
        num_layers: LSTM layers.
        cell_clip, proj_clip: bounds of the cell and of the projected state; None = none.
        use_skip_connections: whether each LSTM layer but the first adds its input to its output.
        dropout: that the model was trained with.
        char_dim: D, width of a character.
        filters: width and number of each convolution.
        n_highway: highway layers over the filters.
        activation: after the largest value over time: ``relu`` or ``tanh``.
        max_characters: characters of a token, its marks included.
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
        """F."""
        return sum(number for _, number in self.filters)

    def to_json(self) -> dict[str, Any]:
        """As ``options.json`` has it."""
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
    """Key of an LSTM's weight."""
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{name}"


def shapes(options: ElmoOptions) -> dict[str, tuple[int, ...]]:
    """Key and shape of every weight; see the module."""
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


def elmo_files(config: Mapping[str, Any], cache_dir: Path) -> dict[str, Path]:
    """``_files_`` of ELMo: ``options`` and ``weights``.

    Args:
        config: reads ``files.options`` and ``files.weights``, else ``path`` (a folder), else ``url.options``
            and ``url.weights``.
        cache_dir: downloads go to its folder ``downloads``.

    Raises:
        HarnessError: they are not there, or a folder holds several.
    """
    given = _by_role(config.get("files"), key="encoder.files")
    out = {role: existing(Path(place), key=f"encoder.files.{role}") for role, place in given.items()}
    if config.get("path") is not None:
        folder = _folder(str(config["path"]))
        return {r: out[r] if r in out else in_folder(folder, r) for r in ROLES}
    url = _by_role(config.get("url"), key="encoder.url")
    if any(r not in out and r not in url for r in ROLES):
        raise HarnessError(
            f"encoder {config.get('name', 'elmo')}: its files are not here; give encoder.path=FOLDER "
            f"(of {NAMES}), or encoder.files.options=FILE and encoder.files.weights=FILE"
        )
    sizes = {WEIGHTS: str((config.get("about") or {}).get("size", ""))}
    for role in (r for r in ROLES if r not in out):
        hint = f"give encoder.path=FOLDER (of {NAMES})"
        out[role] = fetch(url[role], cache_dir / "downloads", size=sizes.get(role, ""), hint=hint)
    return {r: out[r] for r in ROLES}


def _folder(path: str) -> Path:
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise HarnessError(f"encoder.path={path} {what}: give the folder of {NAMES}")
    return folder


def _by_role(value: Any, *, key: str) -> dict[str, str]:
    """The roles that are set."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or set(value) - set(ROLES):
        raise HarnessError(f"{key}={value!r}: {{options: ..., weights: ...}} is wanted")
    return {str(role): str(place) for role, place in value.items() if place is not None}


def in_folder(folder: Path, role: str) -> Path:
    """The one file of a role in a folder: ``options.json`` or ``*options*.json``, and ``*weights*.hdf5``.

    Raises:
        HarnessError: there is none, or there are several.
    """
    if role == OPTIONS and (folder / "options.json").is_file():
        return folder / "options.json"
    wanted = "options.json" if role == OPTIONS else "*weights*.hdf5"
    found = sorted(p for p in folder.glob("*options*.json" if role == OPTIONS else wanted) if p.is_file())
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(p.name for p in found)
        mend = f"say which with encoder.files.{role}=FILE"
        raise HarnessError(f"{folder} holds several {wanted} ({names}): {mend}")
    names = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
    raise HarnessError(f"{folder} holds no {wanted} (but {names}): a folder of {NAMES} is wanted")


def read_options(path: Path) -> ElmoOptions:
    """Read ``options.json``.

    Raises:
        HarnessError: no JSON, a key that is missing, or a value that makes no model; key and value are named.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise HarnessError(f"{path}: cannot be read as JSON ({e})") from e
    cnn, lstm = _section(data, "char_cnn", path), _section(data, "lstm", path)
    if _whole(data, ("char_cnn", "n_characters"), path) not in (N_CHARACTERS, N_CHARACTERS + 1):
        raise HarnessError(f"{path}: char_cnn.n_characters={cnn['n_characters']}: 261 or 262 is wanted")
    activation = cnn.get("activation")
    if activation not in ACTIVATIONS:
        raise HarnessError(f"{path}: char_cnn.activation={activation!r}: relu or tanh is wanted")
    skip = lstm.get("use_skip_connections")
    if not isinstance(skip, bool):
        raise HarnessError(f"{path}: lstm.use_skip_connections={skip!r}: true or false is wanted")
    options = ElmoOptions(
        dim=_whole(data, ("lstm", "dim"), path),
        projection_dim=_whole(data, ("lstm", "projection_dim"), path),
        num_layers=_whole(data, ("lstm", "n_layers"), path),
        cell_clip=_bound(lstm, "cell_clip", path),
        proj_clip=_bound(lstm, "proj_clip", path),
        use_skip_connections=skip,
        dropout=_share(data.get("dropout"), path),
        char_dim=_whole(data, ("char_cnn", "embedding", "dim"), path),
        filters=_filters(cnn.get("filters"), path),
        n_highway=_whole(data, ("char_cnn", "n_highway"), path, low=0) if cnn.get("n_highway") else 0,
        activation=activation,
        max_characters=_whole(data, ("char_cnn", "max_characters_per_token"), path, low=3),
    )
    widest = max(width for width, _ in options.filters)
    if widest > options.max_characters:
        most = options.max_characters
        raise HarnessError(f"{path}: a filter of width {widest} does not fit max_characters_per_token={most}")
    return options


def _section(data: Any, key: str, path: Path) -> Mapping[str, Any]:
    section = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(section, Mapping):
        raise HarnessError(f"{path}: {key} is missing; the options of a character-level biLM are wanted")
    return section


def _whole(data: Any, keys: tuple[str, ...], path: Path, *, low: int = 1) -> int:
    value = data
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        found = "is missing" if value is None else f"is {value!r}"
        raise HarnessError(f"{path}: {'.'.join(keys)} {found}: a whole number from {low} on is wanted")
    return value


def _bound(lstm: Mapping[str, Any], key: str, path: Path) -> float | None:
    value = lstm.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise HarnessError(f"{path}: lstm.{key}={value!r}: a number above 0 or null is wanted")
    return float(value)


def _share(value: Any, path: Path) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise HarnessError(f"{path}: dropout={value!r}: a number in [0, 1) is wanted")
    return float(value)


def _filters(value: Any, path: Path) -> tuple[tuple[int, int], ...]:
    try:
        out = tuple((int(width), int(number)) for width, number in value)
        if out and all(width > 0 and number > 0 for width, number in out):
            return out
    except (TypeError, ValueError):
        pass
    raise HarnessError(f"{path}: char_cnn.filters={value!r}: pairs [width, number] are wanted")
