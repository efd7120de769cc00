"""Reading and writing ELMo's HDF5 file of weights and ``options.json``; torch-free, h5py only when used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.encoders.elmo.files import N_CHARACTERS, PROJECTION, ElmoOptions, shapes
from harness.errors import HarnessError


def read_weights(path: Path, options: ElmoOptions) -> dict[str, np.ndarray]:
    """Every weight by its key as float32, checked; the projection after the filters only if the file has it.

    Raises:
        HarnessError: no HDF5, a missing key, or another shape; file, key, found and wanted shape are named.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            wanted = shapes(options)
            if PROJECTION not in file and options.n_filters == options.projection_dim:
                wanted = {k: s for k, s in wanted.items() if not k.startswith("CNN_proj/")}
            return {key: _dataset(file, key, shape, path) for key, shape in wanted.items()}
    except (OSError, RuntimeError) as e:
        raise HarnessError(f"{path}: cannot be read as HDF5 ({e})") from e


def _dataset(file: Any, key: str, shape: tuple[int, ...], path: Path) -> np.ndarray:
    import h5py

    found = file.get(key)
    if not isinstance(found, h5py.Dataset):
        raise HarnessError(
            f"{path}: {key} of shape {shape} is missing: is options.json the one of these weights?"
        )
    if key == "char_embed" and found.shape == (N_CHARACTERS + 1, shape[1]) and not np.any(found[0]):
        return np.ascontiguousarray(found[1:], dtype=np.float32)  # it holds the row of padding
    if found.shape != shape:
        raise HarnessError(
            f"{path}: {key} has shape {found.shape}, options.json wants {shape}: they are not of one model"
        )
    if found.dtype.kind != "f":
        raise HarnessError(f"{path}: {key} holds {found.dtype}, not floating-point numbers")
    out = np.empty(shape, dtype=np.float32)
    found.read_direct(out)
    if not np.isfinite(out).all():
        raise HarnessError(f"{path}: {key} holds numbers that are not finite: the training diverged")
    return out


def write(
    folder: Path, options: ElmoOptions, weights: Mapping[str, np.ndarray], *, half: bool = False
) -> None:
    """Write ``options.json`` and ``weights.hdf5`` as published, so that any reader of the format takes them.

    Args:
        folder: made when it is not there.
        options: the architecture.
        weights: by key, see :mod:`harness.encoders.elmo.files`.
        half: numbers are kept as float16, which every reader that asks for float32 turns back.

    Raises:
        HarnessError: a weight is missing, unknown or of another shape.
    """
    import h5py

    wanted = shapes(options)
    if PROJECTION not in weights and options.n_filters == options.projection_dim:
        wanted = {k: s for k, s in wanted.items() if not k.startswith("CNN_proj/")}
    for key in sorted({*wanted, *weights}):
        found = np.shape(weights[key]) if key in weights else "nothing"
        if found != wanted.get(key, "no such weight"):
            raise HarnessError(f"{folder}: {key} has shape {found}, wanted is {wanted.get(key, 'none such')}")
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / ".tmp-weights.hdf5"
    with h5py.File(temporary, "w") as file:
        for key, value in weights.items():
            file.create_dataset(key, data=np.asarray(value, dtype=np.float16 if half else np.float32))
    (folder / "options.json").write_text(json.dumps(options.to_json(), indent=2) + "\n", encoding="utf-8")
    temporary.replace(folder / "weights.hdf5")
