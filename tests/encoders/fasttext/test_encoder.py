"""fastText models: all file layouts, n-gram hashes equal to fastText's, composed words, coverage."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch
from harness.encoders.fasttext.encoder import FastTextEncoder, load
from harness.encoders.fasttext.files import is_model
from harness.encoders.fasttext.table import SubwordTable, open_fasttext
from harness.encoders.loading import load_encoder
from harness.encoders.static.encoder import StaticEncoder
from harness.encoders.static.vectors import open_vectors
from harness.errors import HarnessError
from tests.helpers import tiny_fasttext
from tests.helpers.tiny_fasttext import HEAD, dense, dictionary

torch.set_num_threads(1)
WORDS = ["the", "서울", "naïve", "Straße", "</s>", "a"]
DIM, BUCKETS, MINN, MAXN = 3, 50, 2, 4
OUTSIDE = ["서울에서", "naïveté", "🚀", "x", "e\u0301", "<x>", "the-the", "Über", "y" * 90]


def ngrams(word: str, *, minn: int = MINN, maxn: int = MAXN, buckets: int = BUCKETS) -> list[int]:
    """Compute the buckets of a word's n-grams one by one; their order does not matter for a sum."""
    if word == "</s>":
        return []
    marked = f"<{word}>"
    out = []
    for n in range(minn, maxn + 1):
        for i in range(len(marked) - n + 1):
            if n == 1 and i in (0, len(marked) - 1):
                continue
            value = 2166136261
            for byte in marked[i : i + n].encode():
                signed = byte - 256 if byte > 127 else byte
                value = ((value ^ (signed & 0xFFFFFFFF)) * 16777619) & 0xFFFFFFFF
            out.append(value % buckets)
    return out


def matrix(rows: int, *, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, DIM)).astype(np.float32)


def arguments(*, maxn: int = MAXN, bucket: int = BUCKETS, model: int = 2) -> bytes:
    return tiny_fasttext.arguments(dim=DIM, bucket=bucket, minn=MINN, maxn=maxn, model=model)


def save(folder: Path, data: bytes, name: str = "model.bin") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def model(folder: Path, *, old: bool = False, name: str = "model.bin") -> tuple[Path, np.ndarray]:
    values = matrix(len(WORDS) + BUCKETS)
    data = (b"" if old else HEAD) + arguments() + dictionary(WORDS, old=old) + dense(values, old=old)
    return save(folder, data + b"the output matrix is not read", name), values


def expected(values: np.ndarray, word: str, *, words: list[str] = WORDS) -> np.ndarray:
    rows = [words.index(word)] if word in words else []
    rows += [len(words) + b for b in ngrams(word)]
    return values[rows].mean(axis=0, dtype=np.float64) if rows else np.zeros(DIM, np.float32)


def opened(path: Path, folder: Path) -> SubwordTable:
    return open_fasttext(path, cache_dir=folder / "cache")


def test_words_and_composed_words_are_means_over_ngrams(tmp_path: Path) -> None:
    path, values = model(tmp_path)
    table = opened(path, tmp_path)
    assert [table.word(i) for i in range(1, len(table) + 1)] == WORDS
    for i, word in enumerate(WORDS):
        np.testing.assert_allclose(table.matrix[i + 1], expected(values, word), atol=1e-6)
    vectors, counts = table.compose(OUTSIDE)
    assert counts.tolist() == [len(ngrams(w)) for w in OUTSIDE]
    for word, vector in zip(OUTSIDE, vectors, strict=True):
        np.testing.assert_allclose(vector, expected(values, word), atol=1e-6)


def test_sums_do_not_depend_on_the_block_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = model(tmp_path)
    reference_table = opened(path, tmp_path)
    monkeypatch.setattr("harness.encoders.fasttext.table._GATHERED", 40)
    monkeypatch.setattr("harness.encoders.fasttext.table._WORDS_AT_ONCE", 1)
    parts = opened(path, tmp_path / "other")
    np.testing.assert_allclose(reference_table.matrix, parts.matrix, atol=1e-6)
    np.testing.assert_allclose(reference_table.compose(OUTSIDE)[0], parts.compose(OUTSIDE)[0], atol=1e-6)


def test_models_of_the_first_releases_have_no_magic_number(tmp_path: Path) -> None:
    path, values = model(tmp_path, old=True)
    assert is_model(path)
    table = opened(path, tmp_path)
    np.testing.assert_allclose(table.matrix[2], expected(values, "서울"), atol=1e-6)
    vector, count = table.compose(["</s>"])  # the first releases treat it as an ordinary word
    assert count[0] == 12
    assert vector.any()


def test_gzip_and_zip(tmp_path: Path) -> None:
    import zipfile

    path, values = model(tmp_path)
    (tmp_path / "m.bin.gz").write_bytes(gzip.compress(path.read_bytes()))
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.write(path, "m.bin")
        archive.writestr("m.vec", "text")
    for name, member in (("m.bin.gz", None), ("m.zip", "m.bin")):
        assert is_model(tmp_path / name, member=member)
        table = open_fasttext(tmp_path / name, cache_dir=tmp_path / "cache", member=member)
        np.testing.assert_allclose(table.matrix[1], expected(values, "the"), atol=1e-6)


def quantised(values_rows: int, *, norms: bool, seed: int = 1) -> tuple[bytes, np.ndarray]:
    """Draw codes and centroids of two subvectors, the second of width 1; return bytes and decoded matrix."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, size=(values_rows, 2), dtype=np.uint8)
    first, second = rng.normal(size=(256, 2)).astype("<f4"), rng.normal(size=(256, 1)).astype("<f4")
    out = struct.pack("<?2qi", norms, values_rows, DIM, codes.size) + codes.tobytes()
    out += struct.pack("<4i", DIM, 2, 2, 1) + first.tobytes() + second.tobytes()
    values = np.concatenate([first[codes[:, 0]], second[codes[:, 1]]], axis=1)
    if norms:
        picked = rng.integers(0, 256, size=values_rows, dtype=np.uint8)
        lengths = rng.random(256).astype("<f4")
        out += picked.tobytes() + struct.pack("<4i", 1, 1, 1, 1) + lengths.tobytes()
        values = values * lengths[picked][:, None]
    return b"\1" + out, values


@pytest.mark.parametrize("norms", [False, True])
def test_quantised_models_with_pruned_buckets(tmp_path: Path, norms: bool) -> None:
    bucket_rows = {b: i for i, b in enumerate(sorted({*ngrams("서울"), *ngrams("the")[:2]}))}
    data, values = quantised(len(WORDS) + len(bucket_rows), norms=norms)
    body = HEAD + arguments(model=3) + dictionary(WORDS, bucket_rows=bucket_rows, labels=2) + data
    table = opened(save(tmp_path, body, "m.ftz"), tmp_path)
    assert table.quantised
    for word in [*WORDS, "서울에서"]:
        rows = [WORDS.index(word)] if word in WORDS else []
        rows += [len(WORDS) + bucket_rows[b] for b in ngrams(word) if b in bucket_rows]
        row = int(table.lookup([word])[0])
        actual = table.matrix[row] if row else table.compose([word])[0][0]
        np.testing.assert_allclose(actual, values[rows].mean(axis=0), atol=1e-6)
    assert "__label__0" not in table


def test_model_without_ngrams_composes_no_vectors(tmp_path: Path) -> None:
    values = matrix(len(WORDS))
    data = HEAD + arguments(maxn=0, bucket=0) + dictionary(WORDS) + dense(values)
    table = opened(save(tmp_path, data), tmp_path)
    np.testing.assert_array_equal(table.matrix[1:], values)
    vectors, counts = table.compose(["seen", "never"])
    assert not vectors.any()
    assert not counts.any()


def test_classifiers_of_version_11_have_no_ngrams(tmp_path: Path) -> None:
    values = matrix(len(WORDS) + BUCKETS)
    head = struct.pack("<2i", 793712314, 11)
    data = head + arguments(model=3) + dictionary(WORDS) + dense(values)
    np.testing.assert_array_equal(opened(save(tmp_path, data), tmp_path).matrix[1:], values[: len(WORDS)])


def damaged(data: bytes) -> dict[str, tuple[bytes, str]]:
    head = struct.pack("<2i", 793712314, 99)
    nan = matrix(len(WORDS) + BUCKETS)
    nan[3, 1] = np.nan
    start = HEAD + arguments()
    return {
        "newer": (head + data[8:], "version 99"),
        "cut dictionary": (data[:100], "ends within its dictionary"),
        "cut matrix": (data[:-400], "ends within its input matrix"),
        "rows": (start + dictionary(WORDS) + dense(matrix(9)), "9 rows for 6 words and 50 buckets"),
        "counts": (start + struct.pack("<3i2q", 3, 1, 1, 0, -1), "declares 3 entries"),
        "kind": (
            start + struct.pack("<3i2q", 1, 1, 0, 0, -1) + b"x\0" + struct.pack("<qb", 1, 7),
            "unknown kind 7",
        ),
        "nan": (start + dictionary(WORDS) + dense(nan), "not finite"),
        "width": (start + dictionary(WORDS) + dense(np.zeros((56, 5), np.float32)), "has 5 columns"),
    }


@pytest.mark.parametrize("what", list(damaged(b"")))
def test_errors_name_the_damaged_model(tmp_path: Path, what: str) -> None:
    path, _ = model(tmp_path)
    data, message = damaged(path.read_bytes().removesuffix(b"the output matrix is not read"))[what]
    bad = save(tmp_path, data, "bad.bin")
    with pytest.raises(HarnessError, match=message) as caught:
        opened(bad, tmp_path)
    assert str(bad) in str(caught.value)
    assert not list((tmp_path / "cache" / "vectors").glob("*/facts.json"))


def test_second_open_does_not_read_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = model(tmp_path)
    first = opened(path, tmp_path)
    monkeypatch.setattr("harness.encoders.fasttext.table.read_model", None)
    again = pickle.loads(pickle.dumps(opened(path, tmp_path)))
    np.testing.assert_array_equal(first.compose(OUTSIDE)[0], again.compose(OUTSIDE)[0])
    assert not (first.folder / "words.f32").exists()
    assert isinstance(again.ngrams, np.memmap)
    assert isinstance(again.matrix, np.memmap)


def encoder(tmp_path: Path, *, seed: int = 0, **options: Any) -> FastTextEncoder:
    path, _ = model(tmp_path)
    torch.manual_seed(seed)
    enc = load(name="mine", path=path, cache_dir=tmp_path / "cache", **options)
    assert isinstance(enc, FastTextEncoder)
    return enc


def states(enc: StaticEncoder, words: list[str]) -> np.ndarray:
    tokens = TokenBatch.collate([enc.tokenizer.tokenize([Text.from_words(words)], WindowOptions())[0][0]])
    return enc(tokens).last_hidden_state[0].detach().numpy()


@pytest.mark.parametrize("restricted", [False, True])
def test_encoder_gives_every_word_its_vector(tmp_path: Path, restricted: bool) -> None:
    _, values = model(tmp_path)
    enc = encoder(tmp_path)
    words = ["the", "서울에서", "The", "a", "서울", "x", "the"]
    if restricted:
        enc.restrict([*words, "unused", "naïve"])
        assert enc.table.shape == (1 + 8, DIM)
    actual = states(enc, words)
    np.testing.assert_allclose(actual, [expected(values, w) for w in words], atol=1e-6)
    np.testing.assert_allclose(states(enc, words[::-1]), actual[::-1])
    report = enc.tokenizer.coverage()
    assert (report["words"], report["words_known"], report["matched_exact"]) == (14, 14, 8)
    assert (report["composed_from_subwords"], report["types"], report["types_composed"]) == (6, 6, 3)
    assert report["types_known"] == 6


def test_lower_fallback_takes_precedence_over_composing(tmp_path: Path) -> None:
    _, values = model(tmp_path)
    enc = encoder(tmp_path, lower_fallback=True)
    np.testing.assert_allclose(states(enc, ["THE"])[0], expected(values, "the"), atol=1e-6)
    report = enc.tokenizer.coverage()
    assert (report["matched_lower"], report["composed_from_subwords"]) == (1, 0)
    plain = encoder(tmp_path)
    np.testing.assert_allclose(states(plain, ["THE"])[0], expected(values, "THE"), atol=1e-6)


def test_word_without_ngrams_is_unknown(tmp_path: Path) -> None:
    data = HEAD + arguments(maxn=0, bucket=0) + dictionary(WORDS) + dense(matrix(len(WORDS)))
    path = save(tmp_path, data)
    enc = load(name="m", path=path, cache_dir=tmp_path / "cache")
    assert not states(enc, ["zzz"]).any()
    assert enc.tokenizer.coverage()["words_known"] == 0
    assert states(load(name="m", path=path, cache_dir=tmp_path / "cache", unknown="random"), ["zzz"]).any()


def test_training_changes_only_the_rows_of_words_in_the_batch(tmp_path: Path) -> None:
    enc = encoder(tmp_path)
    enc.restrict(["the", "서울에서", "서울역"])
    before = enc.table.detach().clone()
    tokens = TokenBatch.collate(
        [enc.tokenizer.tokenize([Text.from_words(["서울에서"])], WindowOptions())[0][0]]
    )
    enc(tokens).last_hidden_state.sum().backward()
    assert enc.table.grad is not None
    assert enc.table.grad.abs().sum(dim=1).count_nonzero() == 1
    assert torch.equal(before, enc.table)
    assert states(encoder(tmp_path), ["서울역"]).any()


def test_words_outside_a_restricted_table_are_unknown(tmp_path: Path) -> None:
    enc = encoder(tmp_path)
    enc.restrict(["the"])
    assert not states(enc, ["서울에서"]).any()
    with pytest.raises(HarnessError, match="already restricted"):
        enc.restrict(["the"])


@pytest.mark.parametrize("restricted", [False, True])
def test_random_init_draws_composed_words_too(tmp_path: Path, restricted: bool) -> None:
    words = ["the", "서울에서", "x"]

    def draw(seed: int) -> np.ndarray:
        enc = encoder(tmp_path, random_init=True, seed=seed)
        if restricted:
            enc.restrict(words)
        first = states(enc, words)
        np.testing.assert_array_equal(first, states(enc, words))
        return first

    first = draw(1)
    np.testing.assert_array_equal(first, draw(1))
    assert not np.array_equal(first, draw(2))
    assert len(np.unique(first, axis=0)) == 3


def test_fingerprint_depends_on_everything_that_changes_states(tmp_path: Path) -> None:
    plain, lower = encoder(tmp_path), encoder(tmp_path, lower_fallback=True)
    assert plain.fingerprint() == encoder(tmp_path).fingerprint() != lower.fingerprint()
    one, two = encoder(tmp_path), encoder(tmp_path)
    one.restrict(["서울에서"])
    two.restrict(["서울까지"])
    assert one.fingerprint() != two.fingerprint()


def test_text_vectors_are_read_without_ngrams(tmp_path: Path) -> None:
    path = tmp_path / "m.vec"
    path.write_text("2 3 \nsun 1 2 3 \nsea 4 5 6 \n")
    enc = load_encoder("fasttext", path=path, cache_dir=tmp_path / "cache")
    assert not isinstance(enc, FastTextEncoder)
    np.testing.assert_array_equal(enc.encode([["sun", "sea"]])[0], [[1, 2, 3], [4, 5, 6]])


def test_load_encoder_encodes_unknown_words(tmp_path: Path) -> None:
    path, values = model(tmp_path)
    enc = load_encoder("fasttext", path=path, cache_dir=tmp_path / "cache")
    actual = enc.encode([["서울에서", "the"], [], ["x"]])
    np.testing.assert_allclose(actual[0], [expected(values, w) for w in ("서울에서", "the")], atol=1e-6)
    assert actual[1].shape == (0, DIM)
    with pytest.raises(HarnessError, match=r"dim=7: the vectors of .* have size 3"):
        load_encoder("fasttext", path=path, cache_dir=tmp_path / "cache", dim=7)


def compare_with_gensim(path: Path, folder: Path, outside: list[str]) -> tuple[int, float]:
    """Return the number of words and the largest difference, in and out of vocabulary."""
    from gensim.models.fasttext import load_facebook_vectors

    reference, table = load_facebook_vectors(str(path)), opened(path, folder)
    worst = 0.0
    for row in range(1, len(table) + 1):
        worst = max(worst, float(np.abs(reference[table.word(row)] - table.matrix[row]).max()))
    words = [w for w in outside if w not in table]
    vectors, counts = table.compose(words)
    for word, vector, count in zip(words, vectors, counts.tolist(), strict=True):
        if count:  # gensim raises an error for words without n-grams
            worst = max(worst, float(np.abs(reference[word] - vector).max()))
    return len(table), worst


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_against_a_model_trained_and_saved_by_gensim(tmp_path: Path) -> None:
    from gensim.models import FastText
    from gensim.models.fasttext import save_facebook_model

    texts = [["서울에서", "왔다", "the", "naïve", "cat"], ["cat", "서울", "🚀", "Straße", "왔다"]] * 5
    trained = FastText(
        texts, vector_size=8, min_count=1, epochs=2, bucket=200, min_n=2, max_n=5, seed=1, workers=1
    )
    save_facebook_model(trained, str(tmp_path / "g.bin"))
    words, worst = compare_with_gensim(tmp_path / "g.bin", tmp_path, OUTSIDE)
    assert words == 8
    assert worst < 1e-6


@pytest.mark.parametrize(("name", "words"), [("lee_fasttext.bin", 1762), ("non_ascii_fasttext.bin", 171)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_published_models_against_gensim(tmp_path: Path, shared_data: Path, name: str, words: int) -> None:
    """Skips the longest word: gensim adds its 261 n-grams in single precision, an error of 2e-6."""
    path = shared_data / "models" / "word_vector_formats" / name
    count, worst = compare_with_gensim(path, tmp_path, [*OUTSIDE[:-1], "Überraschung", "zzzqq"])
    assert count == words
    assert worst < 1e-6


def test_published_model_against_its_text_vectors(tmp_path: Path, shared_data: Path) -> None:
    folder = shared_data / "models" / "word_vector_formats"
    table = opened(folder / "lee_fasttext.bin", tmp_path)
    text = open_vectors(folder / "lee_fasttext.vec", cache_dir=tmp_path / "cache")
    rows = text.lookup([table.word(i) for i in range(1, len(table) + 1)])
    assert (rows > 0).all()
    np.testing.assert_allclose(
        text.matrix[rows], table.matrix[1:], atol=1e-4
    )  # the .vec file has five digits


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gensim leaves files open
@pytest.mark.parametrize(
    ("name", "binary", "header"),
    [
        ("euclidean_vectors.bin", True, True),
        ("word2vec_pre_kv_c", False, True),
        ("test_glove.txt", False, False),
        ("lee_fasttext.vec", False, True),
    ],
)
def test_published_tables_against_gensim(
    tmp_path: Path, shared_data: Path, name: str, binary: bool, header: bool
) -> None:
    from gensim.models import KeyedVectors

    path = shared_data / "models" / "word_vector_formats" / name
    reference = KeyedVectors.load_word2vec_format(str(path), binary=binary, no_header=not header)
    table = open_vectors(path, cache_dir=tmp_path / "cache")
    assert [table.word(i) for i in range(1, len(table) + 1)] == list(reference.index_to_key)
    assert np.abs(table.matrix[1:] - reference.vectors).max() < 1e-6


def test_against_the_fasttext_package(tmp_path: Path) -> None:
    """Runs only if the optional package ``fasttext`` is installed."""
    fasttext = pytest.importorskip("fasttext")
    source = tmp_path / "text.txt"
    lines = [f"__label__{i % 2} 서울{i} naïve{i % 7} 남자가 the cat{i % 40} Straße 🚀" for i in range(400)]
    source.write_text("\n".join(lines))
    options = {"dim": 5, "minn": 2, "maxn": 4, "bucket": 700, "epoch": 1, "thread": 1, "verbose": 0}
    for how in ({}, {"qnorm": True}, {"qnorm": False, "input": str(source), "cutoff": 300}):
        reference = fasttext.train_supervised(str(source), **options)
        if how:
            reference.quantize(**how)
        path = tmp_path / f"{len(how)}.bin"
        reference.save_model(str(path))
        table = opened(path, tmp_path)
        for word in [*reference.get_words(), *OUTSIDE]:
            row = int(table.lookup([word])[0])
            actual = table.matrix[row] if row else table.compose([word])[0][0]
            np.testing.assert_allclose(actual, reference.get_word_vector(word), atol=1e-6)
