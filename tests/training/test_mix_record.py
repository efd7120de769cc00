"""What a record keeps of the learnt mix of layers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.encoders.scalar_mix import ScalarMix
from harness.errors import HarnessError
from harness.records.record import Record, read_record, write_record
from harness.training.run import scalar_mix_weights


def assembly(layers: Any, *, mix: ScalarMix | None = None, late: ScalarMix | None = None) -> Any:
    return SimpleNamespace(model=SimpleNamespace(layers=layers, mix=mix, late_mix=late))


def mixed(*scalars: float) -> ScalarMix:
    mix = ScalarMix(len(scalars))
    mix.scalars.data = torch.tensor(scalars)
    return mix


def test_without_a_mix_there_is_nothing() -> None:
    assert scalar_mix_weights(assembly("top")) == {}


def test_shares_of_all_layers_and_of_a_list() -> None:
    found = scalar_mix_weights(assembly("mix", mix=mixed(0.0, 0.0, 0.0, 0.0)))
    assert found == {"weights": [0.25] * 4, "gamma": [1.0], "layers": [0.0, 1.0, 2.0, 3.0]}
    some = scalar_mix_weights(assembly([0, 3], mix=mixed(0.0, 0.0), late=mixed(1.0, 0.0)))
    assert some["layers"] == [0.0, 3.0]
    assert some["late_weights"] == pytest.approx([0.7310586, 0.2689414])


def test_it_survives_the_disk(tmp_path: Path) -> None:
    mix = {"layers": [0.0, 1.0], "weights": [0.3, 0.7], "gamma": [1.0]}
    write_record(tmp_path, Record("complete", "t", "e", "s", "c", 0, mix=mix))
    assert read_record(tmp_path).mix == mix
    write_record(tmp_path, Record("complete", "t", "e", "s", "c", 0, mix={"weights": 1.0}))  # type: ignore[dict-item]
    with pytest.raises(HarnessError, match="mix="):
        read_record(tmp_path)
