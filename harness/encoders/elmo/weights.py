"""Read and write ELMo's HDF5 weights and ``options.json``; torch-free, imports h5py only when used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.core.files import atomic_path, write_atomic
from harness.encoders.elmo.files import (
    N_CHARACTERS,
    OPTIONS,
    PROJECTION,
    WEIGHTS,
    ElmoOptions,
    elmo_files,
    read_options,
    shapes,
)
from harness.encoders.facts import EncoderFacts
from harness.errors import HarnessError

if TYPE_CHECKING:
    import h5py

COMPRESSION = 1100
"""More than any compression of HDF5 saves."""


def read_weights(path: Path, options: ElmoOptions) -> dict[str, np.ndarray]:
    """Read and check all weights by key, as float32.

    The projection after the filters is optional if it would not change the width.

    Raises:
        HarnessError: not an HDF5 file, a missing key, or a wrong shape; the message names the file, key and
            shapes.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            expected = _expected_shapes(options, projected=PROJECTION in file)
            return {key: _dataset(file, key, shape, path) for key, shape in expected.items()}
    except (OSError, RuntimeError) as e:
        raise HarnessError(f"{path}: cannot be read as HDF5 ({e})") from e


def check_elmo(config: Mapping[str, object], cache_dir: Path) -> EncoderFacts:
    """Check the options and the names, shapes and sizes of the weights, without reading them (``_check_``).

    Raises:
        HarnessError: see :func:`harness.encoders.elmo.files.read_options` and :func:`read_weights`.
    """
    files = elmo_files(config, cache_dir)
    options = read_options(files[OPTIONS])
    check_weights(files[WEIGHTS], options)
    return EncoderFacts(num_layers=options.num_layers)


def check_weights(path: Path, options: ElmoOptions) -> None:
    """Check names, shapes and sizes of all weights without reading them.

    Raises:
        HarnessError: as for :func:`read_weights`.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            for key, shape in _expected_shapes(options, projected=PROJECTION in file).items():
                _checked(file, key, shape, path)
    except (OSError, RuntimeError, KeyError, ValueError) as e:
        raise HarnessError(f"{path}: cannot be read as HDF5 ({e})") from e


def _checked(file: h5py.File, key: str, shape: tuple[int, ...], path: Path) -> h5py.Dataset:
    """Return a dataset whose data are in this file, with the expected shape."""
    import h5py

    parts = key.split("/")
    for depth in range(1, len(parts) + 1):
        link = file.get("/".join(parts[:depth]), getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise HarnessError(f"{path}: {key} is a link to another file ({link.filename}): not read")
    data = file.get(key)
    if not isinstance(data, h5py.Dataset):
        raise HarnessError(
            f"{path}: {key} of shape {shape} is missing: does options.json belong to these weights?"
        )
    if data.external or data.is_virtual:
        raise HarnessError(f"{path}: {key} is stored in another file, which is not read")
    padded = key == "char_embed" and data.shape == (N_CHARACTERS + 1, shape[1])
    if data.shape != shape and not padded:
        raise HarnessError(
            f"{path}: {key} has shape {data.shape}, expected {shape} from options.json: the files are not "
            "of one model"
        )
    if data.dtype.kind != "f":
        raise HarnessError(f"{path}: {key} contains {data.dtype}, expected floating-point numbers")
    stored = data.id.get_storage_size()
    if data.nbytes > COMPRESSION * stored:
        raise HarnessError(f"{path}: {key} of shape {data.shape} has {stored} bytes in the file: incomplete")
    return data


def _expected_shapes(options: ElmoOptions, *, projected: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes by key; without the projection if it is absent and not needed."""
    expected = shapes(options)
    if not projected and options.n_filters == options.projection_dim:
        return {key: shape for key, shape in expected.items() if not key.startswith("CNN_proj/")}
    return expected


def _dataset(file: h5py.File, key: str, shape: tuple[int, ...], path: Path) -> np.ndarray:
    data = _checked(file, key, shape, path)
    if data.shape != shape:
        if np.any(data[0]):
            raise HarnessError(
                f"{path}: {key} has shape {data.shape}, expected {shape} from options.json: its first row is "
                "not that of the padding"
            )
        return np.ascontiguousarray(data[1:], dtype=np.float32)  # row 0 is the padding id
    out = np.empty(shape, dtype=np.float32)
    data.read_direct(out)
    if not np.isfinite(out).all():
        raise HarnessError(f"{path}: {key} contains non-finite numbers: the training diverged")
    return out


def write_weights(
    folder: Path, options: ElmoOptions, weights: Mapping[str, np.ndarray], *, half: bool = False
) -> None:
    """Write ``options.json`` and ``weights.hdf5`` in the published format, which other programs can read.

    Args:
        folder: created if it does not exist.
        options: the architecture.
        weights: by key, see :mod:`harness.encoders.elmo.files`.
        half: store float16, which readers that request float32 convert.

    Raises:
        HarnessError: a weight is missing, unknown or has a wrong shape.
    """
    import h5py

    expected = _expected_shapes(options, projected=PROJECTION in weights)
    for key in sorted({*expected, *weights}):
        shape = np.shape(weights[key]) if key in weights else None
        if shape is None or shape != expected.get(key):
            raise HarnessError(
                f"{folder}: {key} has shape {shape or 'none (missing)'}, expected "
                f"{expected.get(key, 'no such weight')}"
            )
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder / "weights.hdf5") as temporary:
        with h5py.File(temporary, "w") as file:
            for key, value in weights.items():
                file.create_dataset(key, data=np.asarray(value, dtype=np.float16 if half else np.float32))
        # the options first: a folder with weights must be complete
        write_atomic(folder / "options.json", (json.dumps(options.to_json(), indent=2) + "\n").encode())
