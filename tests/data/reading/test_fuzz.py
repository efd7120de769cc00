"""Arbitrary and mutated files: every reader returns a table or raises HarnessError."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.reading.mutations import SPECIAL, fuzz, read_or_refuse, valid_files

NAMES = tuple(valid_files())
TEXT_NAMES = NAMES[:9]
TEXTS = st.lists(st.sampled_from([s.decode("latin-1") for s in SPECIAL]) | st.text(max_size=8), max_size=12)


@pytest.mark.parametrize("name", NAMES)
def test_changed_files_are_read_or_refused(name: str) -> None:
    fuzz(name, 12, seed=1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(NAMES), st.binary(max_size=200), st.integers(0, 999))
def test_arbitrary_bytes_are_read_or_refused(tmp_path: Path, name: str, data: bytes, seed: int) -> None:
    read_or_refuse(name, data, tmp_path, random.Random(seed))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(TEXT_NAMES), TEXTS, st.integers(0, 999))
def test_arbitrary_texts_are_read_or_refused(tmp_path: Path, name: str, parts: list[str], seed: int) -> None:
    read_or_refuse(name, "".join(parts).encode("utf-8", "surrogatepass"), tmp_path, random.Random(seed))


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("a.csv", b'"'), ("a.csv", b'a,"b\n'), ("a.csv", b'",\n"'), ("a.tsv", b'"\t'),
        ("a.tsv", b'"a""\t\n'),
        ("a.jsonl", b"{}\n"), ("a.jsonl", b"[\n"), ("a.json", b"["), ("a.json", b'{"a":[]},'),
        ("a.txt", b"a\n"), ("a.txt", b"a\tb\n"), ("a.txt", b"@|;,\n"), ("a.ft", b"__label__ "),
        ("a.txt", b"\xff"), ("a.txt", b"\xc3\xa9\xff\n"), ("a.csv", b"\r"), ("a.csv", b",\n"),
        ("a.csv", b"a,"),
    ],
)  # fmt: skip
def test_time_grows_linearly_with_repeated_input(tmp_path: Path, name: str, unit: bytes) -> None:
    """100 kB of a repeated unit; a quadratic step would take minutes."""
    rng = random.Random(0)
    start = time.process_time()
    for _ in range(2):
        read_or_refuse(name, unit * (100_000 // len(unit)), tmp_path, rng)
    assert time.process_time() - start < 10


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_many_changed_files_are_read_or_refused(name: str) -> None:
    fuzz(name, 20_000, seed=random.randrange(1 << 30))
