"""Concatenated encoders: the same states as each member alone, for all windows and padding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from torch import nn

import harness
from harness.core.paths import conf_dir
from harness.core.resolvers import register
from harness.data.batch import Batch
from harness.data.text import Example, Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import EncoderOutput, TokenBatch, TokenizedWindow
from harness.data.windows import owners, windows
from harness.encoders.base import Encoder, Group
from harness.encoders.concat.encoder import ConcatEncoder
from harness.encoders.config import EncoderConfig
from harness.encoders.static.encoder import load
from harness.errors import HarnessError

torch.set_num_threads(1)


class Letters:
    """Tokens are letters between two special tokens; words with a 'q' are removed."""

    pad = {"letters": 31.0}  # noqa: RUF012

    def tokenize(self, texts: Sequence[Text], windowing: WindowOptions) -> list[list[TokenizedWindow]]:
        return [self._rows(t, windowing) for t in texts]

    def coverage(self) -> dict[str, float]:
        return {"letters": 1.0}

    def _rows(self, text: Text, windowing: WindowOptions) -> list[TokenizedWindow]:
        tokens = [
            (w, a + i, text.text[a + i])
            for w, (a, b) in enumerate(text.spans)
            for i in range(b - a)
            if "q" not in text.text[a:b]
        ]
        first = np.full(len(text), -1)
        for place, (w, _, _) in reversed(list(enumerate(tokens))):
            first[w] = place
        room = len(tokens) if windowing.max_length is None else windowing.max_length - 2
        wins = windows(len(tokens), max(1, room), min(windowing.stride, max(0, room - 1)))
        owner = owners(len(tokens), wins)
        return [self._row(tokens[s : s + n], s, first, owner, index) for index, (s, n) in enumerate(wins)]

    def _row(
        self, tokens: list, start: int, first: np.ndarray, owner: np.ndarray, window: int
    ) -> TokenizedWindow:
        codes = np.array([[30, 30], *[[ord(c) % 29, 1] for _, _, c in tokens], [30, 30]], dtype=np.int16)
        owned = np.array([p >= 0 and owner[p] == window for p in first], dtype=bool)
        return TokenizedWindow(
            inputs={"letters": codes},
            word_ids=np.array([-1, *[w for w, _, _ in tokens], -1]),
            offsets=np.array([[0, 0], *[[a, a + 1] for _, a, _ in tokens], [0, 0]]),
            sequence_ids=np.array([-1] + [0] * len(tokens) + [-1]),
            word_to_token=np.where(owned, first - start + 1, -1).reshape(len(first)),
            window=window,
        )


class LetterEncoder(Encoder):
    """Embeddings and two layers with a receptive field of two neighbours on each side."""

    def __init__(self, max_length: int | None = None) -> None:
        super().__init__()
        self.name, self.hidden_size, self.num_layers, self.max_length = "letters", 4, 2, max_length
        self.pooling, self.pairs, self.tokenizer = "mean", "separate", Letters()
        self.table = nn.Embedding(32, 4)
        self.up = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        layers = [self.table(tokens.inputs["letters"][..., 0].long()) * tokens.mask[..., None]]
        for layer in self.up:
            x = nn.functional.pad(layers[-1], (0, 0, 1, 1))
            layers.append(torch.tanh(layer(x[:, :-2] + x[:, 1:-1] + x[:, 2:])) * tokens.mask[..., None])
        return EncoderOutput(layers[-1], torch.stack(layers) if all_layers else None)

    def layer_groups(self) -> list[Group]:
        layers = [(f"layer_{i}", list(m.parameters())) for i, m in enumerate(self.up, start=1)]
        return [("embeddings", list(self.table.parameters())), *layers]

    def embedding_encoder(self) -> Encoder:
        raise AssertionError("not needed here")

    def fingerprint(self) -> str:
        return "letters"


SENTENCES = ["the cat sat on the extraordinarilylongmat", "cat", "", "a qq sat", "the sat " * 20]


def static(tmp_path: Path) -> Encoder:
    (tmp_path / "v.txt").write_text("the 1 1\ncat 2 0\nsat 0 3\n")
    return load(name="v", path=tmp_path / "v.txt", cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("max_length", [None, 12])
@pytest.mark.parametrize("layers", ["top", "all"])
def test_states_of_each_member_are_those_of_the_member_alone(
    tmp_path: Path, max_length: int | None, layers: str
) -> None:
    first, second = static(tmp_path), LetterEncoder(max_length)
    both = ConcatEncoder({"v": first, "letters": second}, name="both")
    assert (both.hidden_size, both.num_layers) == (6, 2)
    joined = both.encode(SENTENCES, layers=layers, batch_size=3)
    first_states, second_states = (
        first.encode(SENTENCES, layers=layers),
        second.encode(SENTENCES, layers=layers),
    )
    for all_of, a, b in zip(joined, first_states, second_states, strict=True):
        np.testing.assert_array_equal(all_of[..., :2], np.broadcast_to(a, all_of[..., :2].shape))
        np.testing.assert_allclose(all_of[..., 2:], b, atol=1e-6)
    assert np.abs(joined[3][..., 1, 2:]).sum() == 0  # the removed word
    assert (np.abs(joined[4][..., 2:]).sum(-1) > 0).all()  # every word of the long text has its vector


def test_tokens_are_words_and_padding_does_not_change_states(tmp_path: Path) -> None:
    both = ConcatEncoder({"v": static(tmp_path), "letters": LetterEncoder(12)}, name="both").eval()
    texts = [Text.from_string(s) for s in SENTENCES]
    rows = [r[0] for r in both.tokenizer.tokenize(texts, WindowOptions())]
    assert [len(r) for r in rows] == [len(t) for t in texts]
    assert all(len(a) == len(r) for r in rows for a in r.inputs.values())
    together = both(TokenBatch.collate(rows, pad=both.tokenizer.pad).to("cpu")).last_hidden_state
    for i, row in enumerate(rows):
        alone = both(TokenBatch.collate([row], pad=both.tokenizer.pad)).last_hidden_state[0]
        torch.testing.assert_close(together[i, : len(row)], alone[: len(row)], atol=1e-6, rtol=0)
        assert together[i, len(row) :].abs().sum() == 0


def test_word_windows_and_batches(tmp_path: Path) -> None:
    both = ConcatEncoder({"v": static(tmp_path), "letters": LetterEncoder(12)}, name="both")
    text = Text.from_string(SENTENCES[4])
    rows = both.tokenizer.tokenize([text], WindowOptions(max_length=16, stride=4))[0]
    assert len(rows) == 3
    assert (sum((r.word_to_token >= 0).astype(int) for r in rows) == 1).all()
    item = (0, Example("a", (text,), None), [(r,) for r in rows], [{} for _ in rows])
    batch = Batch.collate([item], pad=both.tokenizer.pad)
    assert (both(batch.tokens[0]).last_hidden_state.abs().sum(-1) > 0).tolist() == batch.tokens[
        0
    ].mask.tolist()
    cut = both.tokenizer.tokenize([text], WindowOptions(max_length=16, stride=4, truncate=True))[0]
    assert [len(r) for r in cut] == [16]
    assert both.tokenizer.coverage()["texts_cut"] == 1


def test_batch_without_words(tmp_path: Path) -> None:
    both = ConcatEncoder({"letters": LetterEncoder(), "v": static(tmp_path)}, name="both")
    rows = both.tokenizer.tokenize([Text.from_string("")], WindowOptions())[0]
    assert both(TokenBatch.collate(rows), all_layers=True).hidden_states.shape == (3, 1, 1, 6)  # type: ignore[union-attr]


def test_groups_align_at_the_top_and_partition(tmp_path: Path) -> None:
    both = ConcatEncoder({"v": static(tmp_path), "letters": LetterEncoder()}, name="both")
    both.restrict(["cat"])
    groups = both.layer_groups()
    assert [n for n, _ in groups] == ["embeddings", "layer_1", "layer_2"]
    assert len(groups[0][1]) == 2
    ids = [id(p) for _, ps in groups for p in ps]
    assert sorted(ids) == sorted(id(p) for p in both.parameters())
    assert both.members["v"].table.shape == (2, 2)
    assert both.tokenizer.coverage()["letters.letters"] == 1


def test_gradient_reaches_every_member(tmp_path: Path) -> None:
    both = ConcatEncoder({"v": static(tmp_path), "letters": LetterEncoder(12)}, name="both")
    rows = [r[0] for r in both.tokenizer.tokenize([Text.from_string(s) for s in SENTENCES], WindowOptions())]
    both(TokenBatch.collate(rows)).last_hidden_state.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in both.parameters())


def test_fingerprint_depends_on_the_members_and_their_order(tmp_path: Path) -> None:
    torch.manual_seed(0)
    v, letters = static(tmp_path), LetterEncoder()
    one = ConcatEncoder({"v": v, "letters": letters}, name="both").fingerprint()
    assert ConcatEncoder({"v": v, "letters": letters}, name="other").fingerprint() == one
    assert ConcatEncoder({"letters": letters, "v": v}, name="both").fingerprint() != one


def test_members_compose_from_the_command_line(tmp_path: Path) -> None:
    register()
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "mine.yaml").write_text("defaults: [static]\nname: mine\npath: there.txt\n")
    overrides = [
        "encoder=concat",
        "encoder@encoder.members.first=glove_6b_100d",
        "encoder@encoder.members.second=mine",
        "+encoder@encoder.members.fourth=mini_static",
        "encoder.members.first.path=here.txt",
        f"hydra.searchpath=['file://{tmp_path}']",
    ]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose("config", overrides=overrides).encoder
    assert [m.name for m in config.members.values()] == ["glove_6b_100d", "mine", "mini_static"]
    assert (config.name, config.members.first.path, config.members.second.path) == (
        "concat",
        "here.txt",
        "there.txt",
    )
    assert set(config.recipe) == {"scratch", "frozen", "embedding_init", "slow_embedding", "full"}


def joint(members: dict[str, Any]) -> EncoderConfig:
    files = "harness.encoders.concat.files.member_files"
    return EncoderConfig.parse(
        {"_target_": "harness.encoders.concat.load", "_files_": files, "members": members}
    )


def test_files_of_all_members(tmp_path: Path) -> None:
    static(tmp_path)
    member = {
        "_target_": "builtins.dict",
        "_files_": "harness.encoders.download.single_file",
        "path": str(tmp_path / "v.txt"),
    }
    files = joint({"a": member, "b": None, "c": member}).files(tmp_path)
    assert files == {"a.file": tmp_path / "v.txt", "c.file": tmp_path / "v.txt"}
    with pytest.raises(HarnessError, match=r"encoder\.members is empty"):
        joint({"b": None}).files(tmp_path)
    with pytest.raises(HarnessError, match=r"members\.a='glove'.*encoder@encoder\.members\.a=NAME"):
        joint({"a": "glove"})


def test_default_concat_can_be_loaded(tmp_path: Path) -> None:
    encoder = harness.load_encoder("concat", cache_dir=tmp_path)
    alone = harness.load_encoder("mini_static", cache_dir=tmp_path)
    for joined, single in zip(encoder.encode(SENTENCES), alone.encode(SENTENCES), strict=True):
        assert joined.shape == single.shape
