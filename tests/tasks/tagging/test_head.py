"""The tagging head on windows, deleted words, pieces of words and batches of one word."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harness.data.batch import Batch
from harness.data.targets import IGNORE_INDEX
from harness.data.text import Example, Text
from harness.data.tokens import EncoderOutput, TokenizedWindow
from harness.task import HeadInput
from harness_tasks.tagging.head import TaggingHead
from harness_tasks.tagging.schemes import bridge
from harness_tasks.tagging.scoring import span_counts

torch.set_num_threads(1)
LABELS = ["O", "B-PER", "I-PER"]


def example(words: list[str], gold: list[str] | None = None, name: str = "0") -> Example:
    return Example(name, (Text.from_words(words),), gold or ["O"] * len(words))


def tokenized_window(
    word_ids: list[int], word_to_token: list[int], *, values: list[int], window: int = 0
) -> TokenizedWindow:
    """A row whose tokens carry ``values``; :func:`encode` makes them one-hot states. Word -1 = special."""
    ids = np.array(word_ids)
    return TokenizedWindow(
        inputs={"value": np.array(values)},
        word_ids=ids,
        offsets=np.zeros((len(ids), 2), dtype=np.int64),
        sequence_ids=np.where(ids < 0, -1, 0),
        word_to_token=np.array(word_to_token),
        window=window,
    )


def batch_of(
    items: list[tuple[Example, list[TokenizedWindow]]], targets: list[list[list[int]]] | None = None
) -> Batch:
    targets = targets or [[[IGNORE_INDEX] * len(r.word_to_token) for r in rows] for _, rows in items]
    return Batch.collate(
        [
            (i, e, [(r,) for r in rows], [{"labels": np.array(t, dtype=np.int64)} for t in ts])
            for i, ((e, rows), ts) in enumerate(zip(items, targets, strict=True))
        ]
    )


def encode(batch: Batch) -> tuple[EncoderOutput, ...]:
    """One-hot states of width 3 after the tokens' values."""
    return (EncoderOutput(torch.eye(3)[batch.tokens[0].inputs["value"]]),)


def identity_head(**options: str) -> TaggingHead:
    """Logits are the states."""
    spec = HeadInput(hidden_size=3, pooling="cls", pooled=False, pairs="single", dropout=0.5)
    head = TaggingHead(spec, labels=LABELS, fallback="O", **options).eval()
    with torch.no_grad():
        head.output.weight.copy_(torch.eye(3))
        head.output.bias.zero_()
    return head


def test_long_sentences_every_word_is_predicted_once_by_its_owner() -> None:
    # five words in windows 0-2, 1-3, 3-4; the values that a window gives to words it does not own are wrong
    rows = [
        tokenized_window([0, 1, 2], [0, 1, -1, -1, -1], values=[1, 2, 1]),
        tokenized_window([1, 2, 3], [-1, -1, 1, -1, -1], values=[0, 0, 2], window=1),
        tokenized_window([3, 4], [-1, -1, -1, 0, 1], values=[1, 2], window=2),
    ]
    short = (example(["x"], name="1"), [tokenized_window([0], [0], values=[1])])
    head = identity_head()
    batch = batch_of([(example(list("abcde")), rows), short])
    outputs = head(encode(batch), batch)
    assert outputs["logits"].shape == (4, 5, 3)
    long, one = head.decode(outputs, batch)
    assert long.value == ["B-PER", "I-PER", "O", "B-PER", "I-PER"]
    assert one.value == ["B-PER"]
    assert long.extra == {"shape": [5, 3], "labels": LABELS}
    assert np.reshape(long.scores, long.extra["shape"]).argmax(1).tolist() == [1, 2, 0, 1, 2]


def test_loss_counts_each_word_once_whatever_the_windows() -> None:
    whole = [tokenized_window([0, 1, 2], [0, 1, 2], values=[1, 2, 0])]
    cut = [
        tokenized_window([0, 1], [0, -1, -1], values=[1, 2]),
        tokenized_window([1, 2], [-1, 0, 1], values=[2, 0], window=1),
    ]
    head = identity_head()
    one = batch_of([(example(list("abc")), whole)], [[[1, 0, 0]]])
    two = batch_of([(example(list("abc")), cut)], [[[1, IGNORE_INDEX, IGNORE_INDEX], [IGNORE_INDEX, 0, 0]]])
    (a, n), (b, m) = (head.loss(head(encode(x), x), x) for x in (one, two))
    assert (n, m) == (3, 3)
    expected = -torch.eye(3)[[1, 2, 0]].log_softmax(-1)[torch.arange(3), torch.tensor([1, 0, 0])].sum()
    assert a.item() == pytest.approx(expected.item())
    assert b.item() == pytest.approx(a.item())


def test_loss_without_any_target_is_zero_and_has_a_gradient() -> None:
    head = identity_head()
    batch = batch_of([(example(["a"]), [tokenized_window([0], [0], values=[1])])])
    loss, n = head.loss(head(encode(batch), batch), batch)
    assert (loss.item(), n) == (0.0, 0)
    loss.backward()


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_a_word_that_the_tokenizer_deleted(pooling: str) -> None:
    # [CLS] ana runs [SEP]: the zero-width space in the middle has no token
    row = tokenized_window([-1, 0, 2, -1], [1, -1, 2], values=[2, 1, 0, 2])
    head = identity_head(word_pooling=pooling)
    batch = batch_of([(example(["Ana", "\u200b", "runs"]), [row])])
    (prediction,) = head.decode(head(encode(batch), batch), batch)
    assert prediction.value == ["B-PER", "O", "O"]
    assert prediction.extra["no_tokens"] == [1]
    assert len(prediction.scores) == 9


def test_pieces_of_a_word_give_one_label() -> None:
    # [CLS] wash ##ington d . c . [SEP] with the pieces after the first all looking like beginnings
    row = tokenized_window([-1, 0, 0, 1, 1, 1, 1, -1], [1, 3], values=[0, 1, 1, 2, 1, 1, 1, 0])
    gold = ["B-PER", "I-PER"]
    head = identity_head()
    batch = batch_of([(example(["washington", "d.c."], gold), [row])], [[[1, 2]]])
    outputs = head(encode(batch), batch)
    (prediction,) = head.decode(outputs, batch)
    assert prediction.value == gold
    assert span_counts([gold], [prediction.value]).tolist() == [[1, 1, 1]]
    assert head.loss(outputs, batch)[1] == 2


def test_mean_reads_all_pieces() -> None:
    row = tokenized_window([0, 0, 0], [0], values=[2, 1, 1])
    batch = batch_of([(example(["abc"]), [row])])
    assert [p.value for h in ("first", "mean") for p in _decode(identity_head(word_pooling=h), batch)] == [
        ["I-PER"],
        ["B-PER"],
    ]


def test_a_last_batch_of_one_word() -> None:
    head = identity_head()
    single = (example(["x"]), [tokenized_window([-1, 0, -1], [1], values=[0, 1, 0])])
    predictions = []
    for items in ([single] * 4, [single]):
        batch = batch_of(items)
        outputs = head(encode(batch), batch)
        assert outputs["logits"].shape == (len(items), 1, 3)
        predictions += head.decode(outputs, batch)
    assert [p.value for p in predictions] == [["B-PER"]] * 5


def test_dropout_only_while_training() -> None:
    head = identity_head()
    batch = batch_of([(example(["x"]), [tokenized_window([0], [0], values=[1])])])
    assert torch.equal(head(encode(batch), batch)["logits"], head(encode(batch), batch)["logits"])
    assert head.dropout.p == 0.5


def _decode(head: TaggingHead, batch: Batch) -> list:
    return head.decode(head(encode(batch), batch), batch)


@pytest.mark.parametrize(
    ("read", "filled"),
    [
        (["B-TI", None, "I-TI"], ["B-TI", "I-TI", "I-TI"]),
        (["B-TI", None, None, "I-TI", None, "I-TI"], ["B-TI", *["I-TI"] * 5]),
        (["B-TI", None, "B-TI"], ["B-TI", None, "B-TI"]),
        (["B-TI", None, "I-PS"], ["B-TI", None, "I-PS"]),
        (["O", None, "I-PS"], ["O", None, "I-PS"]),
        ([None, "I-PS", None], [None, "I-PS", None]),
        ([], []),
    ],
)
def test_words_that_cannot_be_read_belong_to_the_entity_around_them(
    read: list[str | None], filled: list[str | None]
) -> None:
    assert bridge(read) == filled
