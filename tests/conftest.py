"""Shared by all tests: fixed seeds, one thread, no network, and the folder of real data if there is one."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

# must be set before torch or a hub client is imported
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["WANDB_MODE"] = "disabled"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

DATA = "HARNESS_TEST_DATA"


def pytest_configure(config: pytest.Config) -> None:
    """Run ``long`` tests only if the marker expression names them."""
    if "long" not in (config.option.markexpr or ""):
        config.option.markexpr = " and ".join(filter(None, [config.option.markexpr, "not long"]))


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    """Use the same seed in every test, and one thread if torch is imported."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data and published files that cannot be bundled because of size or license."""
    where = os.environ.get(DATA)
    if not where:
        pytest.skip(f"{DATA} is not set to the folder with data/ and models/ that this test reads")
    folder = Path(where).resolve()
    if not (folder / "data").is_dir():
        pytest.fail(f"{DATA}={where}: has no subfolder data/")
    return folder


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name bytes by their argument: compressed data differ from run to run, and parallel workers must collect
    equal names."""
    return argname if isinstance(val, bytes) else None
