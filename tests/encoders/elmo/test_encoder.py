"""ELMo states: against the published fixture and a reference implementation of the equations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import harness
from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch
from harness.encoders.elmo import characters as elmo_characters
from harness.encoders.elmo import lstm
from harness.encoders.elmo.characters import boundary_ids, character_ids, unique_rows
from harness.encoders.elmo.encoder import ElmoEncoder, load
from harness.encoders.elmo.files import ElmoOptions, read_options
from harness.encoders.elmo.lstm import BiLSTMLayer, Packing
from harness.encoders.elmo.weights import read_weights
from tests.helpers.tiny_elmo import TINY, PlainElmo, make_elmo, random_weights

torch.set_num_threads(1)
SENTENCES = [
    ["the", "cat", "sat", "on", "the", "extraordinarily", "long", "mat"],
    ["cat"],
    ["다시", "한국어", "문장", "이다", "."],
    [],
    ["x" * 60, "🚀🚀", "the", "<S>", "the"],
    ["the", "cat", "sat"],
]


def fixture_folder(shared_data: Path) -> Path:
    return shared_data / "models" / "elmo_fixture_allennlp"


def expected_top(folder: Path) -> list[list[np.ndarray]]:
    """Return [list][sentence] of (words, 32), both directions concatenated."""
    import h5py

    out = []
    for k in range(3):
        with h5py.File(folder / f"lm_embeddings_{k}.hdf5") as file:
            out.append([np.concatenate(list(file[str(i)][...]), axis=1) for i in range(10)])
    return out


def passed(encoder: ElmoEncoder, folder: Path) -> int:
    """Count the fixture's 30 sentences whose states agree, in batches of three."""
    lists, expected = json.loads((folder / "sentences.json").read_text()), expected_top(folder)
    good = 0
    for i in range(10):
        actual = encoder.encode([lists[k][i].split() for k in range(3)], layers="all")
        for k in range(3):
            assert actual[k].shape == (3, len(lists[k][i].split()), 32)
            good += np.allclose(actual[k][2], expected[k][i], atol=1e-6)
    return good


def test_published_fixture_states(shared_data: Path, tmp_path: Path) -> None:
    folder = fixture_folder(shared_data)
    encoder = harness.load_encoder("elmo", path=folder, stateful=True, cache_dir=tmp_path)
    assert passed(encoder, folder) == 30  # type: ignore[arg-type]


def test_published_fixture_in_one_call(shared_data: Path, tmp_path: Path) -> None:
    folder = fixture_folder(shared_data)
    encoder = harness.load_encoder("elmo", path=folder, stateful=True, cache_dir=tmp_path)
    lists, expected = json.loads((folder / "sentences.json").read_text()), expected_top(folder)
    turns = [lists[k][i].split() for i in range(10) for k in range(3)]
    actual = encoder.encode(turns, batch_size=3)
    for n, states in enumerate(actual):
        np.testing.assert_allclose(states, expected[n % 3][n // 3], atol=1e-6, rtol=1e-5)


def test_wrong_variants_fail_the_fixture(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fixture_folder(shared_data)
    options = read_options(folder / "options.json")
    weights = read_weights(folder / "lm_weights.hdf5", options)

    def count(options: ElmoOptions, *, stateful: bool = True, forget: float = 0.0) -> int:
        changed = {k: v.copy() for k, v in weights.items()}
        for key, value in changed.items():
            if key.endswith("/B"):
                value[2 * options.dim : 3 * options.dim] += forget
        encoder = ElmoEncoder(options, changed, name="wrong").eval()
        encoder.stateful = stateful
        return passed(encoder, folder)

    assert count(options) == 30
    assert count(options, stateful=False) == 3  # the first of each list
    assert count(options, forget=-1.0) == 0
    assert count(replace(options, use_skip_connections=False)) == 0


def test_published_fixture_tokens(shared_data: Path, tmp_path: Path) -> None:
    import h5py

    folder = fixture_folder(shared_data)
    words = (folder / "vocab_test.txt").read_text().strip().split("\n")
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        expected = file["embedding"][...]
    encoder = harness.load_encoder("elmo", path=folder, cache_dir=tmp_path)
    actual = np.concatenate(encoder.embedding_encoder().encode([[w] for w in words]))
    assert len(words) == 458
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    layers = np.concatenate(encoder.encode([[w] for w in words], layers="all"), axis=1)
    np.testing.assert_allclose(layers[0], np.concatenate([expected, expected], axis=1), atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_skip_connections": False},
        {"num_layers": 3, "n_highway": 0, "activation": "tanh"},
        {"num_layers": 1, "n_highway": 2, "cell_clip": None, "proj_clip": None},
        {"filters": ((1, 3), (7, 5)), "n_highway": 2},
    ],
)
def test_states_equal_the_reference_implementation(tmp_path: Path, changes: dict) -> None:
    options = replace(TINY, **changes)
    path = make_elmo(tmp_path, **changes)
    encoder = harness.load_encoder("elmo", path=path, stateful=True, cache_dir=tmp_path)
    plain = PlainElmo(options, random_weights(options))
    # the number of rows changes; a row without words leaves its state as it is
    for batch in (SENTENCES, SENTENCES[:2], SENTENCES[::-1], [*SENTENCES, ["more"]]):
        actual = encoder.encode(batch, layers="all")
        for row, sentence in enumerate(batch):
            if sentence:
                expected = plain.sentence(sentence, row)
                for layer in range(options.num_layers + 1):
                    np.testing.assert_allclose(actual[row][layer], expected[layer], atol=5e-6, rtol=1e-5)
            else:
                assert actual[row].shape == (options.num_layers + 1, 0, 16)


@pytest.mark.parametrize("wrong", ["reset", "forget", "skip", "order", "cell", "proj"])
def test_reference_implementation_detects_mistakes(tmp_path: Path, wrong: str) -> None:
    """Each plausible mistake (gate order, forget bias, clipping, skips, reset) changes the states."""
    encoder = load(name="tiny", path=make_elmo(tmp_path), cache_dir=tmp_path).eval()
    encoder.stateful = True
    plain = PlainElmo(TINY, random_weights(TINY), wrong=wrong)
    for sentence in (SENTENCES[0], SENTENCES[4]):
        actual, expected = encoder.encode([sentence])[0], plain.sentence(sentence, 0)[-1]
    assert np.abs(actual - expected).max() > 1e-3


def small_layer(**changes: float | None) -> BiLSTMLayer:
    options = replace(TINY, dim=1, projection_dim=1, **changes)  # type: ignore[arg-type]
    layer = BiLSTMLayer(options, skip=False)
    for parameter in layer.parameters():
        parameter.data.zero_()
    return layer


def test_gates_come_as_input_cell_forget_output() -> None:
    """The published order of the gates is i, j, f, o, and 1 is added to the forget gate."""
    layer = small_layer(cell_clip=None, proj_clip=None)
    layer.weight.data[:, :, 0] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    layer.projection.data.fill_(1.0)
    start = (torch.zeros(2, 1, 1), torch.full((2, 1, 1), 0.5))
    h, (_, c) = layer(torch.ones(2, 1, 1), [1], start)
    i, j, f, o = torch.sigmoid(torch.tensor(0.1)), 0.2, torch.sigmoid(torch.tensor(1.3)), torch.tensor(0.4)
    cell = f * 0.5 + i * np.tanh(j)
    torch.testing.assert_close(c[0, 0, 0], cell)
    torch.testing.assert_close(h[0, 0, 0], torch.sigmoid(o) * torch.tanh(cell))


def test_cell_and_projection_are_clipped() -> None:
    """Cell and projection are clipped at the published bound of 3, for positive and negative values."""
    layer = small_layer(cell_clip=3.0, proj_clip=3.0)
    layer.biases[0].data[2:] = layer.biases[1].data[2:] = torch.tensor([50.0, 50.0])  # forget and output open
    layer.projection.data.fill_(1.0)
    for before, cell, hidden in ((5.0, 3.0, 0.995055), (-4.0, -3.0, -0.995055), (0.5, 0.5, 0.462117)):
        start = (torch.zeros(2, 1, 1), torch.full((2, 1, 1), before))
        h, (_, c) = layer(torch.zeros(2, 1, 1), [1], start)
        assert c[0, 0, 0].item() == pytest.approx(cell)
        assert h[0, 0, 0].item() == pytest.approx(hidden, abs=1e-6)
    for factor, projected in ((4.2, 3.0), (-9.0, -3.0), (1.0, 1.0)):
        layer.projection.data.fill_(factor / 0.995055)
        h, _ = layer(torch.zeros(2, 1, 1), [1], (torch.zeros(2, 1, 1), torch.full((2, 1, 1), 5.0)))
        assert h[0, 0, 0].item() == pytest.approx(projected, abs=1e-5)


def test_character_numbers() -> None:
    """Ids are the byte + 1, the marks of words and sentences come after all bytes, and 0 is padding."""
    assert character_ids("cat").tolist() == [259, 100, 98, 117, 260] + [261] * 45
    begin, end = boundary_ids().tolist()
    assert begin == [259, 257, 260] + [261] * 47
    assert end == [259, 258, 260] + [261] * 47
    assert character_ids("<S>").tolist() == begin
    assert character_ids("</S>").tolist() == end
    long = character_ids("x" * 60).tolist()
    assert long == [259] + [ord("x") + 1] * 48 + [260]
    assert character_ids("가").tolist()[:5] == [259, *(b + 1 for b in "가".encode()), 260]


def encoder_of(tmp_path: Path, **changes: object) -> ElmoEncoder:
    return load(name="tiny", path=make_elmo(tmp_path / "model", **changes), cache_dir=tmp_path).eval()


def tokens_of(encoder: ElmoEncoder, sentences: Sequence[Sequence[str]]) -> TokenBatch:
    texts = [Text.from_words(s) for s in sentences]
    rows = [rows[0] for rows in encoder.tokenizer.tokenize(texts, WindowOptions())]
    return TokenBatch.collate(rows, pad=encoder.tokenizer.pad)


def test_padding_is_masked(tmp_path: Path) -> None:
    """Padding has character ids 0 and zero states, and does not change the states of real words."""
    encoder = encoder_of(tmp_path)
    tokens = tokens_of(encoder, [["this", "is", "a", "long", "one"], ["short", "one"]])
    assert tokens.mask.sum(1).tolist() == [5, 2]
    assert not tokens.inputs["characters"][1, 2:].any()
    with torch.inference_mode():
        together = encoder(tokens, all_layers=True).hidden_states
        alone = encoder(tokens_of(encoder, [["short", "one"]]), all_layers=True).hidden_states
    assert together is not None
    assert alone is not None
    torch.testing.assert_close(together[:, 1, :2], alone[:, 0], atol=1e-6, rtol=0)
    assert not together[:, 1, 2:].any()


def test_batch_order_and_lengths_are_preserved(tmp_path: Path) -> None:
    """States are returned in input order, without those of the sentence boundaries."""
    encoder = encoder_of(tmp_path)
    batch = [["a", "b"], list("cdefg"), ["h", "i", "j"], list("klmno")]
    actual = encoder.encode(batch)
    assert [f.shape for f in actual] == [(2, 16), (5, 16), (3, 16), (5, 16)]
    for sentence, states in zip(batch, actual, strict=True):
        np.testing.assert_allclose(states, encoder.encode([sentence])[0], atol=1e-6)


def test_states_of_a_sentence_are_reproducible(tmp_path: Path) -> None:
    """Alone, in a batch, twice in a row, after saving and loading, and after loading a state dict."""
    encoder = encoder_of(tmp_path)
    sentence = SENTENCES[0]
    first = encoder.encode([sentence], layers="all")[0]
    crowd = [sentence, *(sentence * 2 + [str(n)] * n for n in range(31))]
    np.testing.assert_allclose(encoder.encode(crowd, layers="all")[0], first, atol=1e-6)
    np.testing.assert_array_equal(encoder.encode([sentence], layers="all")[0], first)
    encoder.save(tmp_path / "again")
    again = harness.load_encoder("elmo", path=tmp_path / "again", cache_dir=tmp_path)
    np.testing.assert_array_equal(again.encode([sentence], layers="all")[0], first)
    assert again.fingerprint() == encoder.fingerprint()
    other = harness.load_encoder("elmo", path=tmp_path / "again", cache_dir=tmp_path, random_init=True)
    assert np.abs(other.encode([sentence], layers="all")[0] - first).max() > 0.01
    assert other.fingerprint() != encoder.fingerprint()
    other.load_state_dict(encoder.state_dict())
    np.testing.assert_array_equal(other.encode([sentence], layers="all")[0], first)


def test_states_do_not_depend_on_block_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_of(tmp_path)
    full = encoder.encode(SENTENCES, layers="all")
    monkeypatch.setattr(elmo_characters, "CHUNK", 2)
    monkeypatch.setattr(lstm, "MAX_GATES", 8 * TINY.dim * 7)
    for a, b in zip(full, encoder.encode(SENTENCES, layers="all"), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_repeated_words_are_encoded_once(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path)
    vectors, number = encoder.characters(
        tokens_of(encoder, [["a", "b", "a"], ["b", "c"]]).inputs["characters"][
            torch.tensor([[True, True, True], [True, True, False]])
        ]
    )
    assert len(vectors) == 3
    assert number[0] == number[2]
    assert number[1] == number[3]
    rows = torch.tensor([[3, 1], [0, 0], [3, 1], [1, 3]], dtype=torch.int16)
    different, inverse = unique_rows(rows)
    assert len(different) == 3
    assert torch.equal(different[inverse], rows)


def test_packing_excludes_padding() -> None:
    mask = torch.tensor([[True, False, False], [True, True, True], [False, False, False]])
    packing = Packing.of(mask)
    assert packing.rows.tolist() == [1, 0]
    assert packing.sizes == [2, 2, 2, 1, 1]
    assert packing.source[0].tolist() == [4, 4, 1, 0, 2, 5, 3, 5]
    assert packing.source[1].tolist() == [5, 5, 3, 0, 2, 4, 1, 4]
    assert torch.equal(packing.source.gather(1, packing.place), torch.arange(4).expand(2, 4))


class TorchElmo(nn.Module):
    """The encoder's forward pass over one sentence in plain torch, with the encoder's parameters."""

    def __init__(self, encoder: ElmoEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, characters: Tensor) -> Tensor:
        """Map character ids (words, 50) to the top layer's states (words, 2 P)."""
        encoder, marks = self.encoder, torch.from_numpy(boundary_ids())
        all_words = torch.cat([marks[:1], characters, marks[1:]]).long() - 1
        of = encoder.characters
        e = of.characters[all_words].transpose(1, 2)
        x = torch.cat(
            [
                nn.functional.conv1d(e, w, b).amax(2)
                for w, b in zip(of.filters, of.filter_biases, strict=True)
            ],
            1,
        ).relu()
        for h in of.highways:
            g = torch.sigmoid(x @ h.carry + h.carry_bias)
            x = g * torch.relu(x @ h.transform + h.transform_bias) + (1 - g) * x
        x = x @ of.projection.weight + of.projection.bias  # type: ignore[union-attr]
        both = [self.run(d, x if d == 0 else x.flip(0)) for d in (0, 1)]
        return torch.cat([both[0], both[1].flip(0)], 1)[1:-1]

    def run(self, direction: int, x: Tensor) -> Tensor:
        for layer in self.encoder.layers:
            h, c, out = torch.zeros(8), torch.zeros(12), []
            for step in x:
                gates = torch.cat([step, h]) @ layer.weight[direction].t() + layer.biases[direction]
                i, j, f, o = gates.chunk(4)
                c = (torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(j)).clamp(-1.5, 1.5)
                h = ((torch.sigmoid(o) * torch.tanh(c)) @ layer.projection[direction]).clamp(-1.5, 1.5)
                out.append(h + step if layer.skip else h)
            x = torch.stack(out)
        return x


def test_gradient_equals_that_of_plain_torch(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path)
    tokens = tokens_of(encoder, SENTENCES)
    plain = TorchElmo(encoder)
    direction = torch.randn(*tokens.mask.shape, 16)
    (encoder(tokens).last_hidden_state * direction).sum().backward()
    fast = {n: p.grad.clone() for n, p in encoder.named_parameters() if p.grad is not None}
    encoder.zero_grad()
    for row, sentence in enumerate(SENTENCES):
        if sentence:
            states = plain(tokens.inputs["characters"][row, : len(sentence)])
            (states * direction[row, : len(sentence)]).sum().backward()
    assert set(fast) == {n for n, _ in encoder.named_parameters()}
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0, name
        torch.testing.assert_close(fast[name], parameter.grad, atol=1e-4, rtol=1e-4)


def test_dropout_in_training_only(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path)
    tokens = tokens_of(encoder, SENTENCES)
    assert encoder.dropout == pytest.approx(0.1)
    assert torch.equal(encoder(tokens).last_hidden_state, encoder(tokens).last_hidden_state)
    encoder.train()
    assert not torch.equal(encoder(tokens).last_hidden_state, encoder(tokens).last_hidden_state)
    none = load(name="t", path=tmp_path / "model", cache_dir=tmp_path, dropout=0.0).train()
    assert torch.equal(none(tokens).last_hidden_state, none(tokens).last_hidden_state)


def test_groups_and_character_layer(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path)
    groups = encoder.layer_groups()
    assert [n for n, _ in groups] == ["embeddings", "layer_1", "layer_2"]
    table = encoder.embedding_encoder()
    assert table.hidden_size == 8
    assert {id(p) for p in table.parameters()} == {id(p) for p in groups[0][1]}
    tokens, layers = table.encode(SENTENCES), encoder.encode(SENTENCES, layers="all")
    for a, b in zip(tokens, layers, strict=True):
        # The two paths convolve different batches, so that the order of summation depends on the CPU's
        # kernels. The values reach 6, where one float32 ulp is 4.8e-7: the tolerance must be relative to the
        # magnitude.
        np.testing.assert_allclose(np.concatenate([a, a], axis=-1), b[0], atol=1e-6, rtol=1e-6)


def test_coverage_counts_truncated_words(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path)
    encoder.encode([["a", "x" * 48, "x" * 49, "가" * 16, "가" * 17]])
    report = encoder.tokenizer.coverage()
    assert (report["words"], report["words_cut"], report["types"]) == (5, 2, 5)


def test_reset_clears_the_states(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path)
    first = encoder.encode([SENTENCES[0]])[0]
    encoder.stateful = True
    np.testing.assert_array_equal(encoder.encode([SENTENCES[0]])[0], first)
    assert np.abs(encoder.encode([SENTENCES[0]])[0] - first).max() > 1e-3
    encoder.reset()
    np.testing.assert_array_equal(encoder.encode([SENTENCES[0]])[0], first)
    tokens = tokens_of(encoder, SENTENCES)
    for _ in range(2):  # no gradient flows into the previous batch
        encoder(tokens).last_hidden_state.sum().backward()
