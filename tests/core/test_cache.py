"""The cache of folders: concurrency, killed builders, damage, size limit."""

import contextlib
import multiprocessing as mp
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.core.cache import Store


def worker(root: Path, built: Path, slow: bool) -> None:
    def build(folder: Path) -> None:
        (folder / "a.bin").write_bytes(b"x" * 1000)
        if slow:
            (built / "slow-started").touch()
            time.sleep(60)
        (folder / "b.bin").write_bytes(b"y" * 1000)
        (built / str(os.getpid())).touch()

    Store(root, max_bytes=10**9).get("key", build)


def test_concurrent_callers_build_once_and_a_killed_builder_does_not_block(tmp_path: Path) -> None:
    """Parallel cells of a sweep share one feature cache, and any of them may be killed while it builds."""
    root, built = tmp_path / "store", tmp_path / "built"
    built.mkdir()
    context = mp.get_context("fork")
    victim = context.Process(target=worker, args=(root, built, True))
    victim.start()
    while not (built / "slow-started").exists():
        time.sleep(0.01)
    others = [context.Process(target=worker, args=(root, built, False)) for _ in range(3)]
    for process in others:
        process.start()
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    for process in [victim, *others]:
        process.join(20)
    assert [p.exitcode for p in others] == [0, 0, 0]
    assert len([p for p in built.iterdir() if p.name.isdigit()]) == 1
    assert {p.name for p in (root / "key").iterdir()} == {"a.bin", "b.bin", ".store.json"}
    assert not list(root.glob(".tmp-*"))


def test_second_call_is_a_hit_and_a_damaged_folder_is_rebuilt(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=10**9)
    calls: list[int] = []

    def build(folder: Path) -> None:
        calls.append(1)
        (folder / "data").write_bytes(b"z" * 100)

    assert store.get("k", build)[1] is False
    assert store.get("k", build)[1] is True
    (tmp_path / "k" / "data").write_bytes(b"z" * 50)
    folder, hit = store.get("k", build)
    assert (hit, len(calls), (folder / "data").stat().st_size) == (False, 2, 100)


def test_the_least_recently_used_folder_is_evicted_first(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=2500)

    def build(folder: Path) -> None:
        (folder / "data").write_bytes(b"z" * 1000)

    for key in ("a", "b"):
        store.get(key, build)
        time.sleep(0.02)
    store.get("a", build)
    time.sleep(0.02)
    store.get("c", build)
    assert {p.name for p in tmp_path.iterdir() if not p.name.startswith(".")} == {"a", "c"}


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=10)

    def build(folder: Path) -> None:
        (folder / "data").write_bytes(b"z")
        raise RuntimeError("disk on fire")

    with contextlib.suppress(RuntimeError):
        store.get("k", build)
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


def test_files_changed_at_the_same_size_are_detected(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=10**9)
    folder, _ = store.get("k", lambda f: (f / "data").write_bytes(b"z" * 5000))
    (folder / "data").write_bytes(b"z" * 2000 + b"\0" * 64 + b"z" * 2936)
    assert not store.is_complete("k")


def test_unreadable_folders_are_rebuilt(tmp_path: Path) -> None:
    store, calls = Store(tmp_path, max_bytes=10**9), []

    def reader(folder: Path) -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not what it was")
        return (folder / "data").read_text()

    assert store.read("k", lambda f: (f / "data").write_text("good"), reader) == ("good", False)


def test_a_cache_too_small_for_its_readers_still_works(tmp_path: Path) -> None:
    def serve(number: int) -> int:
        store = Store(tmp_path, max_bytes=1500)
        for i in range(25):
            key = f"k{(i + number) % 4}"
            text, _ = store.read(
                key, lambda f, k=key: (f / "data").write_text(k * 500), lambda f: (f / "data").read_text()
            )
            assert text == key * 500
        return number

    with ThreadPoolExecutor(3) as threads:
        assert sorted(threads.map(serve, range(3))) == [0, 1, 2]
