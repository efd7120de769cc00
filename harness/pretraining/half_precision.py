"""Conversion of finished weights to half precision; every reader converts them back to float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FLOAT16_MAX = 65504.0


def halve(folder: Path) -> bool:
    """Store the float32 arrays of every ``.safetensors`` and ``.hdf5`` file in ``folder`` as float16.

    Values beyond 65,504 are clipped.

    Returns:
        False if the folder has no such file.
    """
    converters = {".safetensors": _halve_safetensors, ".hdf5": _halve_hdf5}
    paths = [path for path in sorted(folder.iterdir()) if path.suffix in converters]
    for path in paths:
        converters[path.suffix](path)
    return bool(paths)


def _half(values: np.ndarray) -> np.ndarray:
    if values.dtype != np.float32:
        return values
    return np.asarray(np.clip(values, -FLOAT16_MAX, FLOAT16_MAX)).astype(np.float16)


def _halve_safetensors(path: Path) -> None:
    from safetensors import safe_open
    from safetensors.numpy import save_file

    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
        tensors = {name: _half(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata=metadata)


def _halve_hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None)
        arrays = {name: file[name][()] for name in names}
    # written to a new file: HDF5 does not release the space of a data set that is replaced
    with h5py.File(path, "w") as file:
        for name in names:
            file[name] = _half(arrays[name])
