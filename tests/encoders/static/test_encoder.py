"""Static word vectors as an encoder: lookup, unknown words, coverage, restriction, windows."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch
from harness.encoders.static.encoder import StaticEncoder, load
from harness.errors import HarnessError

torch.set_num_threads(1)
VECTORS = "apple 1 0\nApple 0 1\nparis 2 2\n"


def encoder(tmp_path: Path, text: str = VECTORS, *, seed: int = 7, **options: object) -> StaticEncoder:
    path = tmp_path / "v.txt"
    path.write_text(text)
    torch.manual_seed(seed)
    return load(name="mine", path=path, cache_dir=tmp_path / "cache", **options)  # type: ignore[arg-type]


def states(enc: StaticEncoder, words: list[str]) -> np.ndarray:
    tokens = TokenBatch.collate([enc.tokenizer.tokenize([Text.from_words(words)], WindowOptions())[0][0]])
    return enc(tokens).last_hidden_state[0].detach().numpy()


def test_exact_lookup(tmp_path: Path) -> None:
    enc = encoder(tmp_path, lower_fallback=False)
    actual = states(enc, ["Apple", "PARIS", "zzz"])
    unknown = enc.table[0].detach().numpy()
    np.testing.assert_array_equal(actual, [[0, 1], unknown, unknown])
    report = enc.tokenizer.coverage()
    assert (report["words"], report["words_known"], report["types"], report["types_known"]) == (3, 1, 3, 1)


def test_lower_case_fallback_and_coverage(tmp_path: Path) -> None:
    enc = encoder(tmp_path)
    actual = states(enc, ["Apple", "PARIS", "zzz"])
    np.testing.assert_array_equal(actual[:2], [[0, 1], [2, 2]])
    np.testing.assert_array_equal(actual[2], enc.table[0].detach().numpy())
    states(enc, ["apple", "apple"])
    report = enc.tokenizer.coverage()
    assert (report["words"], report["words_known"]) == (5, 4)
    assert (report["matched_exact"], report["matched_lower"]) == (3, 1)
    assert (report["types"], report["types_known"]) == (4, 3)
    assert report["file_words"] == 3


@pytest.mark.parametrize("restricted", [False, True])
def test_rows_are_not_off_by_one_and_unknown_vector_is_seeded(tmp_path: Path, restricted: bool) -> None:
    """Row 0 is reserved for the unknown word, so all other rows are shifted by one."""

    def draw(seed: int) -> np.ndarray:
        enc = encoder(tmp_path, "cat 1 1\ndog 2 2\n", seed=seed)
        if restricted:
            enc.restrict(["dog", "cat", "xyz"])
        return states(enc, ["cat", "dog", "xyz"])

    first, again, other = draw(7), draw(7), draw(8)
    np.testing.assert_array_equal(first[:2], [[1, 1], [2, 2]])
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[2], other[2])


def test_padding_has_zero_states_and_no_gradient(tmp_path: Path) -> None:
    enc = encoder(tmp_path)
    rows = [
        r[0]
        for r in enc.tokenizer.tokenize(
            [Text.from_words(["apple"] * 3), Text.from_words(["paris"])], WindowOptions()
        )
    ]
    out = enc(TokenBatch.collate(rows)).last_hidden_state
    assert out[1, 1:].abs().sum() == 0
    out.sum().backward()
    assert enc.table.grad is not None
    assert enc.table.grad[0].abs().sum() == 0


def test_unknown_word_of_the_file_is_used(tmp_path: Path) -> None:
    text = "cat 1 1\n<unk> 5 6\ndog 7 8\n"
    assert states(encoder(tmp_path, text), ["zzz"]).tolist() == [[5, 6]]
    assert states(encoder(tmp_path, text, unknown="dog"), ["zzz"]).tolist() == [[7, 8]]
    assert states(encoder(tmp_path, text, unknown="random"), ["zzz"]).tolist() != [[5, 6]]
    with pytest.raises(HarnessError, match=r"encoder\.unknown=cow"):
        encoder(tmp_path, text, unknown="cow")


def test_table_is_the_mapped_file_until_restricted(tmp_path: Path) -> None:
    enc = encoder(tmp_path)
    assert enc.table.shape == (4, 2)
    before = states(enc, ["paris", "Paris", "zzz"])
    enc.restrict({"paris", "zzz", "Paris"})
    assert enc.table.shape == (2, 2)
    np.testing.assert_array_equal(states(enc, ["paris", "Paris", "zzz"]), before)
    np.testing.assert_array_equal(states(enc, ["apple"]), before[2:])
    with pytest.raises(HarnessError, match="load the encoder again"):
        enc.restrict(["apple"])


def test_training_a_table_does_not_change_the_cached_file(tmp_path: Path) -> None:
    enc = encoder(tmp_path)
    with torch.no_grad():
        enc.table.add_(100)
    assert states(encoder(tmp_path), ["paris"]).tolist() == [[2, 2]]


def test_random_init_keeps_vocabulary_and_scale_and_is_seeded(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(scale=3, size=(400, 50))
    text = "".join(f"w{i} " + " ".join(map(str, v)) + "\n" for i, v in enumerate(values))
    words = [f"w{i}" for i in range(400)]
    first = states(encoder(tmp_path, text, random_init=True), words)
    assert abs(first.std() - 3) < 0.1
    assert abs(first - values).mean() > 1
    np.testing.assert_array_equal(first, states(encoder(tmp_path, text, random_init=True), words))
    enc = encoder(tmp_path, text, random_init=True)
    enc.restrict(words[:200])
    assert enc.table.shape == (201, 50)
    assert abs(states(enc, words[:200]).std() - 3) < 0.15


def test_groups_partition_the_parameters_and_embedding_encoder_is_self(tmp_path: Path) -> None:
    enc = encoder(tmp_path)
    ((name, parameters),) = enc.layer_groups()
    assert name == "embeddings"
    assert {id(p) for p in parameters} == {id(p) for p in enc.parameters()}
    assert enc.embedding_encoder() is enc
    assert (enc.num_layers, enc.max_length, enc.pooling, enc.pairs) == (0, None, "mean", "separate")


def test_fingerprint_depends_on_everything_that_changes_states(tmp_path: Path) -> None:
    base = encoder(tmp_path).fingerprint()
    assert encoder(tmp_path).fingerprint() == base
    restricted = encoder(tmp_path)
    restricted.restrict(["apple"])
    others = [
        encoder(tmp_path, lower_fallback=False),
        encoder(tmp_path, seed=8),
        encoder(tmp_path, random_init=True),
        encoder(tmp_path, VECTORS + "rome 3 3\n"),
        restricted,
    ]
    assert len({base, *(o.fingerprint() for o in others)}) == 6


def test_copies_have_equal_states(tmp_path: Path) -> None:
    enc = encoder(tmp_path)
    other = copy.deepcopy(enc)
    np.testing.assert_array_equal(states(other, ["paris", "zzz"]), states(enc, ["paris", "zzz"]))


def test_long_texts_are_cut_into_windows_that_own_each_word_once(tmp_path: Path) -> None:
    enc = encoder(tmp_path)
    text = Text.from_words([["apple", "paris", "zzz"][i % 3] for i in range(23)])
    rows = enc.tokenizer.tokenize([text], WindowOptions(max_length=8, stride=4))[0]
    assert [len(r) for r in rows] == [8, 8, 8, 8, 7]
    assert (sum((r.word_to_token >= 0).astype(int) for r in rows) == 1).all()
    for row in rows:
        for word in np.flatnonzero(row.word_to_token >= 0):
            assert row.word_ids[row.word_to_token[word]] == word
        assert (row.offsets == np.array(text.spans)[row.word_ids]).all()
    cut = enc.tokenizer.tokenize([text], WindowOptions(max_length=8, stride=4, truncate=True))[0]
    assert len(cut) == 1
    assert (cut[0].word_to_token >= 0).sum() == 8
    assert enc.tokenizer.coverage()["texts_cut"] == 1


def test_empty_text_has_one_empty_window(tmp_path: Path) -> None:
    enc = encoder(tmp_path)
    rows = enc.tokenizer.tokenize([Text.from_string("")], WindowOptions(max_length=8))[0]
    assert [len(r) for r in rows] == [0]
    assert enc(TokenBatch.collate(rows)).last_hidden_state.shape == (1, 1, 2)


def test_pairs_are_encoded_separately(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="separate"):
        encoder(tmp_path).tokenizer.tokenize_pairs([], WindowOptions())
