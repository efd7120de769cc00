"""Finished weights in half precision, and what reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import harness
from harness.pretraining.half_precision import halve
from tests.helpers.tiny_elmo import TINY


def test_numbers_are_halved_all_else_stays(tmp_path: Path) -> None:
    import h5py
    from safetensors import safe_open
    from safetensors.numpy import save_file

    numbers = np.array([0.1, -3.0, 1e6, -1e6], np.float32)
    save_file({"x": numbers, "n": np.arange(3)}, tmp_path / "a.safetensors", metadata={"format": "pt"})
    with h5py.File(tmp_path / "b.hdf5", "w") as file:
        file["deep/x"], file["n"] = numbers, np.arange(3)
    (tmp_path / "c.txt").write_text("0.1")
    halve(tmp_path)
    with safe_open(tmp_path / "a.safetensors", framework="np") as read:
        assert read.metadata() == {"format": "pt"}
        found = [read.get_tensor("x"), read.get_tensor("n")]
    with h5py.File(tmp_path / "b.hdf5") as file:
        found += [file["deep/x"][()], file["n"][()]]
    for x, n in (found[:2], found[2:]):
        assert x.dtype == np.float16
        np.testing.assert_allclose(x.astype(np.float32), [0.1, -3.0, 65504, -65504], rtol=1e-3)
        np.testing.assert_array_equal(n, np.arange(3))
        assert n.dtype == np.int64
    assert (tmp_path / "c.txt").read_text() == "0.1"


@pytest.mark.parametrize("family", ["elmo"])
def test_a_reader_turns_them_back_into_full_precision(family: str, tmp_path: Path) -> None:
    from harness.encoders.elmo.encoder import ElmoEncoder

    torch.manual_seed(0)
    ElmoEncoder(TINY, None, name="x", dropout=0.0).save(tmp_path)
    before = harness.load_encoder(family, path=str(tmp_path)).encode(["a ship"])[0]
    halve(tmp_path)
    encoder = harness.load_encoder(family, path=str(tmp_path))
    assert all(p.dtype == torch.float32 for p in encoder.parameters())
    np.testing.assert_allclose(encoder.encode(["a ship"])[0], before, atol=5e-3)
