"""Word-vector files: format detection, exact values, error messages, rebuilding damaged tables."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from harness.data.windows import owners, windows
from harness.encoders.static.vectors import VectorTable, open_vectors
from harness.errors import HarnessError

GLOVE = "sun 1 2 3\nsea 4 5 6\n"


def table(
    tmp_path: Path, content: str | bytes, *, name: str = "v.any", dim: int | None = None
) -> VectorTable:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return open_vectors(path, cache_dir=tmp_path / "cache", dim=dim)


def contents(opened: VectorTable) -> dict[str, list[float]]:
    return {opened.word(i): opened.matrix[i].tolist() for i in range(1, len(opened) + 1)}


def as_binary(vectors: dict[str, list[float]], *, newline: bytes = b"\n") -> bytes:
    dim = len(next(iter(vectors.values())))
    rows = [w.encode() + b" " + struct.pack(f"<{dim}f", *v) + newline for w, v in vectors.items()]
    return f"{len(vectors)} {dim}\n".encode() + b"".join(rows)


@pytest.mark.parametrize(
    "text",
    [
        GLOVE,
        "2 3\n" + GLOVE,
        GLOVE.replace("\n", "\r\n"),
        GLOVE.replace("\n", " \n"),
        GLOVE.replace(" ", "\t"),
        "\ufeff" + GLOVE,
        GLOVE.strip(),
        GLOVE + "\n\n",
        "2 3\n" + GLOVE.replace(" ", "  "),
    ],
)
def test_text_with_and_without_header(tmp_path: Path, text: str) -> None:
    opened = table(tmp_path, text)
    assert contents(opened) == {"sun": [1, 2, 3], "sea": [4, 5, 6]}
    assert (opened.info.dim, len(opened)) == (3, 2)


@pytest.mark.parametrize("dim", [3, None])
def test_words_with_spaces(tmp_path: Path, dim: int | None) -> None:
    text = ". . . 0.1 0.2 0.3\nat name@domain.com 0.4 0.5 0.6\nsun 1 2 3\n"
    opened = table(tmp_path, text, dim=dim)
    assert list(contents(opened)) == [". . .", "at name@domain.com", "sun"]
    np.testing.assert_array_equal(
        opened.matrix[1:], np.float32([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [1, 2, 3]])
    )


def test_words_that_look_like_numbers(tmp_path: Path) -> None:
    opened = table(tmp_path, "-0.5125 0.7 -0.4 0.2\n2017 1 2 3\n1e5 4 5 6\nnan 7 8 9\n")
    assert list(contents(opened)) == ["-0.5125", "2017", "1e5", "nan"]
    expected = np.float32([[0.7, -0.4, 0.2], [1, 2, 3], [4, 5, 6], [7, 8, 9]])
    np.testing.assert_array_equal(opened.matrix[1:], expected)


@pytest.mark.parametrize("text", ["3 2\ncat 1 0\ndog 0 1\ncat 5 5\n", "cat 1 0\ndog 0 1\ncat 5 5\n"])
def test_first_of_duplicate_words_is_used(tmp_path: Path, text: str) -> None:
    opened = table(tmp_path, text)
    assert contents(opened) == {"cat": [1, 0], "dog": [0, 1]}
    assert opened.info.duplicates == 1
    assert len(opened.matrix) == 3


@pytest.mark.parametrize(
    "data",
    [
        "3220320a616c706861200a200a3f0000803f0a6f6d6567612000000040000000bf0a",
        "3220320a616c706861200a200a3f0000803f6f6d6567612000000040000000bf",
    ],
)
def test_binary_with_and_without_newlines(tmp_path: Path, data: str) -> None:
    opened = table(tmp_path, bytes.fromhex(data))
    assert contents(opened) == {"alpha": [0.5395513772964478, 1.0], "omega": [2.0, -0.5]}


def test_binary_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.encoders.static.vector_chunks.BLOCK", 37)
    values = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    vectors = {f"wörd{i}": v.tolist() for i, v in enumerate(values)}
    assert contents(table(tmp_path, as_binary(vectors))) == vectors


def test_text_across_blocks_keeps_line_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.encoders.static.vector_chunks.BLOCK", 41)
    lines = [f"w{i} {i} {i}.5 -{i}" if i % 7 else f"two words {i} {i}.5 -{i}" for i in range(60)]
    opened = table(tmp_path, "\n".join(lines))
    assert len(opened) == 60 - 8
    assert contents(opened)["w59"] == [59, 59.5, -59]
    lines[40] = "w40 1 x 3"
    with pytest.raises(HarnessError, match=r"bad, line 41: 'x' in 'w40 1 x 3' is not a number"):
        table(tmp_path, "\n".join(lines), name="bad")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sun 1 2 3\nsea 4 5\nsky 1 2 3\n", "line 2: 'sea 4 5' has 2 numbers"),
        ("sun 1 2 3\nsea 4 5 nan\n", "line 2: the vector of 'sea' contains nan"),
        ("sun 1 2 3\nsea 4 5 1e39\n", "line 2: the vector of 'sea' contains inf"),
        ("3 3\nsun 1 2 3\nsea 4 5 6\n", "declares 3 words, but the file contains 2"),
        ("2 3\nsun 1 2\nsea 4 5 6\n", "line 2: 'sun 1 2' has 2 numbers"),
        ("0 3\n", "declares no vectors"),
        ("", "is empty"),
        ("word\n", "line 1: 'word' has no vector"),
        (b"\xba\x16\x4f\x2f\x00\x00\x00\x00", "use encoder=fasttext"),
        (as_binary({"a": [1, 2], "b": [3, 4]})[:-4], "declares 2 words, but the file contains 1"),
        (as_binary({"a": [1, 2], "b": [3, 4]}) + b"c 12345678", "follows the 2 words declared by the header"),
        (as_binary({"a": [1, 2], "b": [3, float("inf")]}), "the vector of 'b' contains a non-finite number"),
    ],
)
def test_errors_name_the_file(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(HarnessError, match=message.replace("(", r"\(")) as error:
        table(tmp_path, text)
    assert str(tmp_path / "v.any") in str(error.value)


def test_dim_must_match_the_header(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"encoder\.dim=4 does not match the vector size 3"):
        table(tmp_path, "2 3\n" + GLOVE, dim=4)


def test_words_that_are_not_utf8_are_kept_and_counted(tmp_path: Path) -> None:
    opened = table(tmp_path, b"caf\xe9 1 2\nna\xc3\xafve 3 4\nsun\xe2\x80\xa8x 5 6\n")
    assert list(contents(opened)) == ["caf\ufffd", "naïve", "sun\u2028x"]
    assert opened.info.undecodable == 1


def test_gzip_and_zip(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a", "wb") as f:
        f.write(GLOVE.encode())
    with zipfile.ZipFile(tmp_path / "b", "w") as z:
        z.writestr("one.txt", GLOVE)
        z.writestr("two.txt", "moon 1 2\n")
    cache = tmp_path / "cache"
    assert len(open_vectors(tmp_path / "a", cache_dir=cache, member="ignored")) == 2
    assert contents(open_vectors(tmp_path / "b", cache_dir=cache, member="two.txt")) == {"moon": [1, 2]}
    assert contents(open_vectors(tmp_path / "b", cache_dir=cache, member="one.txt"))["sea"] == [4, 5, 6]
    with pytest.raises(HarnessError, match=r"choose one with encoder\.member"):
        open_vectors(tmp_path / "b", cache_dir=cache)
    with pytest.raises(HarnessError, match=r"did you mean two\.txt"):
        open_vectors(tmp_path / "b", cache_dir=cache, member="tow.txt")


def test_damaged_archive_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(os.urandom(3000))[:-800])
    with pytest.raises(HarnessError, match=r"a\.gz: damaged or incomplete"):
        open_vectors(tmp_path / "a.gz", cache_dir=tmp_path / "cache")


def test_lookup_finds_every_word_and_no_other(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(3000)]
    opened = table(tmp_path, "".join(f"{w} {i} 1\n" for i, w in enumerate(words)))
    rows = opened.lookup([*words, "w", "w3000", ""])
    np.testing.assert_array_equal(rows[:3000], np.arange(1, 3001))
    assert rows[3000:].tolist() == [0, 0, 0]
    np.testing.assert_array_equal(opened.matrix[rows[:3000], 0], np.arange(3000))
    assert "w17" in opened
    assert "x17" not in opened


def test_words_with_equal_hashes_are_distinguished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "harness.encoders.static.vectors._hashes", lambda words: np.zeros(len(list(words)), dtype=np.uint64)
    )
    opened = table(tmp_path, "a 1 1\nb 2 2\nc 3 3\n")
    assert opened.lookup(["c", "x", "a", "b"]).tolist() == [3, 0, 1, 2]


def test_writing_to_an_open_table_stays_in_the_process(tmp_path: Path) -> None:
    opened = table(tmp_path, GLOVE)
    opened.matrix[0] = 9
    again = pickle.loads(pickle.dumps(opened))
    assert again.matrix[0].tolist() == [0, 0, 0]
    assert again.lookup(["sea"]).tolist() == [2]


def test_second_open_does_not_parse_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = table(tmp_path, GLOVE)
    monkeypatch.setattr("harness.encoders.static.vectors.read_chunks", None)
    assert contents(open_vectors(tmp_path / "v.any", cache_dir=tmp_path / "cache")) == contents(first)


def test_a_changed_file_gets_a_new_table(tmp_path: Path) -> None:
    first = table(tmp_path, GLOVE)
    second = table(tmp_path, "sun 7 8 9\n")
    assert contents(second) == {"sun": [7, 8, 9]}
    assert first.info.content != second.info.content


@pytest.mark.parametrize(
    "part", ["vectors.f32", "words.bin", "offsets.npy", "hashes.npy", "rows.npy", "facts.json"]
)
@pytest.mark.parametrize("how", ["truncated", "overwritten", "deleted"])
def test_damaged_table_is_rebuilt(tmp_path: Path, part: str, how: str) -> None:
    folder = table(tmp_path, GLOVE).folder
    size = (folder / part).stat().st_size
    if how == "deleted":
        (folder / part).unlink()
    else:
        (folder / part).write_bytes(bytes(size if how == "overwritten" else size // 2))
    assert contents(table(tmp_path, GLOVE)) == {"sun": [1, 2, 3], "sea": [4, 5, 6]}


def test_a_failed_parse_leaves_no_table(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(HarnessError):
            table(tmp_path, GLOVE + "sky 4 5\n")
    left = [p for p in (tmp_path / "cache" / "vectors").iterdir() if p.is_dir() and p.name != ".seen"]
    assert left == []


def _open(path: Path, cache: Path) -> list[float]:
    return open_vectors(path, cache_dir=cache).matrix[2].tolist()


def test_concurrent_builders_share_one_table(tmp_path: Path) -> None:
    path = tmp_path / "v"
    path.write_text("".join(f"w{i} {i} 1\n" for i in range(2000)))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        rows_read = pool.starmap(_open, [(path, tmp_path / "cache")] * 4)
    assert rows_read == [[1, 1]] * 4


def test_missing_file_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"nowhere\.txt: no such word-vector file"):
        open_vectors(tmp_path / "nowhere.txt", cache_dir=tmp_path)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_against_gensim_on_real_files(tmp_path: Path) -> None:
    root = os.environ.get("HARNESS_TEST_DATA")
    if not root:
        pytest.skip("HARNESS_TEST_DATA is unset")
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    formats = Path(root) / "models" / "word_vector_formats"
    for path, options in [
        (formats / "euclidean_vectors.bin", {"binary": True}),
        (formats / "word2vec_pre_kv_c", {}),
        (formats / "lee_fasttext.vec", {}),
        (formats / "test_glove.txt", {"no_header": True}),
        (Path(root) / "models" / "glove_6b_50d_top20k.txt.gz", {"no_header": True}),
    ]:
        reference = keyed.load_word2vec_format(str(path), **options)
        ours = open_vectors(path, cache_dir=tmp_path)
        rows = ours.lookup(reference.index_to_key)
        np.testing.assert_array_equal(rows, np.arange(1, len(reference) + 1), err_msg=path.name)
        np.testing.assert_allclose(ours.matrix[rows], reference.vectors, rtol=1e-6, err_msg=path.name)
        assert abs(ours.info.std - reference.vectors.std(dtype=np.float64)) < 1e-6


def test_windows_skip_no_token() -> None:
    """A stride as long as the window, or longer, must be an error instead of skipping tokens."""
    assert windows(150, 108, 0) == [(0, 108), (108, 42)]
    for stride in (108, 120):
        with pytest.raises(HarnessError, match=f"stride={stride}"):
            windows(150, 108, stride)


@pytest.mark.parametrize("n", [0, 1, 5, 6, 7, 29, 30])
@pytest.mark.parametrize("room", [1, 2, 6, 7])
def test_windows_cover_all_tokens_and_each_token_has_one_owner(n: int, room: int) -> None:
    for stride in range(room):
        wins = windows(n, room, stride)
        assert sorted({u for start, length in wins for u in range(start, start + length)}) == list(range(n))
        assert all(length <= room for _, length in wins)
        assert len(wins) == 1 or wins[-2][0] + wins[-2][1] < n
        owner = owners(n, wins)
        for token, window in enumerate(owner):
            context = [
                min(token - start, start + length - 1 - token) + 0.01 * length
                if start <= token < start + length
                else -1
                for start, length in wins
            ]
            assert window == int(np.argmax(context))


def test_windows_without_room() -> None:
    with pytest.raises(HarnessError, match=r"increase trainer\.max_length"):
        windows(5, 0, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"2 1099511627776\na 1\n", "declares more than 100000 dimensions"),
        (b"2 " + b"9" * 5000 + b"\na 1\n", "declares more than 100000 dimensions"),
        (b"2 90000\na 1\n", "declares vectors of 90000 numbers, but the file has"),
        (b"text,label\nA good film,pos\n", "is not a number|has no vector"),
    ],
)
def test_files_that_are_refused_before_a_cell_starts(tmp_path, content, message):
    """A header that declares more than the file can contain, and a file that is no file of word vectors."""
    from harness.encoders.static.vector_chunks import check_vectors

    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(HarnessError, match=message):
        check_vectors({"path": str(path)}, tmp_path)
