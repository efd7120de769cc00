"""Finished weights in half precision, which every reader turns back into full precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def halve(folder: Path) -> bool:
    """Write float32 numbers of each ``.safetensors`` and ``.hdf5`` file in ``folder`` as float16, at most
    65,504; False where there is none."""
    found = False
    for path in sorted(folder.iterdir()):
        found |= path.suffix in (".safetensors", ".hdf5")
        if path.suffix == ".safetensors":
            _safetensors(path)
        elif path.suffix == ".hdf5":
            _hdf5(path)
    return found


def _half(values: np.ndarray) -> np.ndarray:
    if values.dtype != np.float32:
        return values
    most = np.finfo(np.float16).max
    return np.clip(values, -most, most).astype(np.float16)


def _safetensors(path: Path) -> None:
    from safetensors import safe_open
    from safetensors.numpy import save_file

    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
        tensors = {name: _half(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata=metadata)


def _hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None)
        found = {name: file[name][()] for name in names}
    with h5py.File(path, "w") as file:
        for name in names:
            file[name] = _half(found[name])
