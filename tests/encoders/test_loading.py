"""Loading encoders by name, and encoding sentences."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

import harness
from harness.core.paths import conf_dir
from harness.encoders.base import Encoder
from harness.encoders.download import fetch, single_file
from harness.encoders.loading import encoder_config
from harness.errors import HarnessError

torch.set_num_threads(1)


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "v.txt"
    path.write_text("the 1 1\ncat 2 0\nsat 0 3\n")
    return path


def load(vectors: Path, **options: object) -> Encoder:
    return harness.load_encoder("static", vectors, cache_dir=vectors.parent / "cache", **options)


def test_package_root_has_a_version_and_does_not_import_torch() -> None:
    code = "import sys, harness; harness.__version__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_attribute_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no_such"):
        _ = harness.no_such  # type: ignore[attr-defined]


def test_encode_returns_one_array_per_sentence_in_order(vectors: Path) -> None:
    enc = load(vectors)
    assert not enc.training
    out = enc.encode(["The cat sat", "", ["sat"], "cat cat cat cat"], batch_size=2)
    assert [a.shape for a in out] == [(3, 2), (0, 2), (1, 2), (4, 2)]
    assert all(a.dtype == np.float32 for a in out)
    assert out[0].tolist() == [[1, 1], [2, 0], [0, 3]]
    assert out[2].tolist() == [[0, 3]]
    assert enc.encode([]) == []


def test_encode_all_layers_and_modes(vectors: Path) -> None:
    enc = load(vectors).train()
    (out,) = enc.encode(["the cat"], layers="all")
    assert out.shape == (1, 2, 2)
    assert enc.training
    with pytest.raises(HarnessError, match="top, all, or layer numbers"):
        enc.encode(["x"], layers="al")
    with pytest.raises(HarnessError, match=r"encoder\.layers=mix"):
        enc.encode(["x"], layers="mix")


@pytest.mark.parametrize("bad", ["the cat", [["the", ""]], [["the", 3]], [1], [None]])
def test_encode_rejects_anything_but_a_list_of_sentences(vectors: Path, bad: object) -> None:
    with pytest.raises(HarnessError):
        load(vectors).encode(bad)  # type: ignore[arg-type]


def test_names_options_and_files_are_checked(vectors: Path, tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="did you mean static"):
        harness.load_encoder("statics")
    with pytest.raises(HarnessError, match=r'load_encoder\("bert", path='):
        harness.load_encoder("some/checkpoint")
    with pytest.raises(HarnessError, match="did you mean lower_fallback"):
        load(vectors, lower_falback=True)
    with pytest.raises(HarnessError, match=r"did you mean v\.txt"):
        harness.load_encoder("static", tmp_path / "v.text", cache_dir=tmp_path)
    with pytest.raises(HarnessError, match=r"code\.google\.com.*encoder\.path=FILE"):
        harness.load_encoder("word2vec_googlenews", cache_dir=tmp_path)


def test_custom_encoder_from_a_three_line_yaml(vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "mine.yaml").write_text(f"defaults: [static]\nname: mine\npath: {vectors}\n")
    config = encoder_config("mine", config_dir=tmp_path)
    assert config["name"] == "mine"
    assert config["recipe"]["frozen"]["lr"] == 1e-3
    enc = harness.load_encoder("mine", config_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert enc.name == "mine"
    assert enc.encode(["cat"])[0].tolist() == [[2, 0]]


@pytest.mark.parametrize(
    "name", ["static", "glove_6b_100d", "glove_6b_300d", "glove_840b", "word2vec_googlenews"]
)
def test_bundled_configurations_are_complete(name: str) -> None:
    assert (conf_dir() / "encoder" / f"{name}.yaml").is_file()
    config = encoder_config(name)
    assert config["name"] == name
    assert config["table"] is True
    assert config["result_version"] == 1
    assert set(config["about"]) >= {"family", "unit", "objective", "size", "source"}
    assert set(config["recipe"]) == {"scratch", "frozen", "embedding_init", "slow_embedding", "full"}
    assert all(r["source"] for r in config["recipe"].values())


def test_offline_gives_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"name": "x", "url": "http://127.0.0.1:9/v.zip", "about": {"size": "1 GB"}}
    with pytest.raises(
        HarnessError,
        match=r"127\.0\.0\.1:9/v\.zip \(1 GB\) cannot be downloaded.*refused.*encoder\.path=FILE",
    ):
        single_file(config, tmp_path)
    monkeypatch.setenv("HARNESS_OFFLINE", "1")
    with pytest.raises(HarnessError, match="HARNESS_OFFLINE"):
        single_file(config, tmp_path)
    assert not list((tmp_path / "downloads").rglob(".tmp-*"))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(handler: Callable[..., SimpleHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free local port; yields the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_download_prints_size_and_destination_and_happens_once(
    vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(functools.partial(_Quiet, directory=str(vectors.parent))) as address:
        url = f"{address}/v.txt"
        path = fetch(url, tmp_path / "downloads")
    assert path.read_bytes() == vectors.read_bytes()
    assert f"downloading {url} (0 MB) to {path}" in capsys.readouterr().err
    assert fetch(url, tmp_path / "downloads") == path
    assert capsys.readouterr().err == ""


def test_concurrent_callers_share_one_download(vectors: Path, tmp_path: Path) -> None:
    requests: list[str] = []

    class Counting(_Quiet):
        def do_GET(self) -> None:
            requests.append(self.path)
            super().do_GET()

    handler = functools.partial(Counting, directory=str(vectors.parent))
    with serving(handler) as address, ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch(f"{address}/v.txt", tmp_path / "downloads"), range(4)))
    assert len(set(paths)) == 1
    assert requests == ["/v.txt"]


def test_checksum_is_verified(vectors: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(vectors.read_bytes()).hexdigest()
    with serving(functools.partial(_Quiet, directory=str(vectors.parent))) as address:
        config = {"name": "x", "url": f"{address}/v.txt", "sha256": digest}
        path = single_file(config, tmp_path)["file"]
    assert single_file(config, tmp_path)["file"] == path  # without a server
    with pytest.raises(HarnessError, match=rf"SHA-256 is {digest}, expected {'0' * 64}"):
        single_file({**config, "sha256": "0" * 64}, tmp_path)
    path.write_text("damaged")
    with pytest.raises(HarnessError, match=rf"expected {digest}"):
        single_file(config, tmp_path)


def test_incomplete_download_leaves_no_file(tmp_path: Path) -> None:
    class Truncating(_Quiet):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)

    with serving(Truncating) as address, pytest.raises(HarnessError, match=r"v\.txt"):
        fetch(f"{address}/v.txt", tmp_path / "downloads")
    assert [p.name for p in (tmp_path / "downloads").rglob("*") if p.is_file()] == [".v.txt.lock"]


def test_layers_by_number_equal_a_selection_of_all(tmp_path: Path) -> None:
    encoder = harness.load_encoder("mini_bert")
    sentences = ["Anna went home .", ["two", "words"]]
    all_layers = encoder.encode(sentences, layers="all")
    for layers in (1, [0, 2], [2]):
        for selected, every in zip(encoder.encode(sentences, layers=layers), all_layers, strict=True):
            assert np.array_equal(selected, every[layers])
    for wrong in (3, [0, -1], "mix", [True], None):
        with pytest.raises(HarnessError, match="from 0 to 2"):
            encoder.encode(sentences, layers=wrong)


def test_two_addresses_with_the_same_last_part_are_two_files(tmp_path):
    folder = tmp_path / "served"
    (folder / "a").mkdir(parents=True)
    (folder / "v.txt").write_text("first 1 2\n")
    (folder / "a" / "v.txt").write_text("other 1 2\n")
    with serving(partial(SimpleHTTPRequestHandler, directory=str(folder))) as address:
        paths = [fetch(f"{address}/{name}", tmp_path / "downloads") for name in ("v.txt", "a/v.txt")]
    assert [p.read_text() for p in paths] == ["first 1 2\n", "other 1 2\n"]
