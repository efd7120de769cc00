"""Trains the demo's three tiny encoders on the demo corpus and saves them in the published formats.

Skip-gram vectors (Mikolov et al. 2013) in GloVe's text format; a two-layer BERT by masked language modelling
(Devlin et al. 2019, section 3.1); a two-layer GPT-2 by causal language modelling (Radford et al. 2019).
"""

from __future__ import annotations

import gzip
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.data.text import Text

WIDTH = 64
MASKED_SHARE = 0.15
NO_LOSS = -100


def save_vectors(lines: Sequence[str], path: Path) -> None:
    """Skip-gram vectors of width 32 over the shared word splitter's lower-cased words, one worker."""
    from gensim.models import Word2Vec

    sentences = [[word.lower() for word in Text.from_string(line).words] for line in lines]
    model = Word2Vec(sentences, vector_size=32, sg=1, window=10, min_count=2, epochs=60, seed=1, workers=1)
    rows = (f"{w} {' '.join(f'{x:.4f}' for x in model.wv[w])}\n" for w in model.wv.index_to_key)
    path.write_bytes(gzip.compress("".join(rows).encode(), mtime=0))


def save_bert(lines: Sequence[str], folder: Path) -> float:
    """A BERT with its masked-language-model head and no pooler. Returns the last steps' mean loss."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    vocab = {piece: i for i, piece in enumerate(_word_pieces(lines))}
    tokenizer = BertTokenizer(vocab=vocab, do_lower_case=True, model_max_length=256)
    torch.manual_seed(1)
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=len(vocab),
            hidden_size=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=2 * WIDTH,
            max_position_embeddings=256,
        )
    )
    special = set(tokenizer.all_special_ids)

    def corrupt(ids: Tensor) -> tuple[Tensor, Tensor]:
        chosen = (torch.rand(ids.shape) < MASKED_SHARE) & torch.tensor(
            [[int(i) not in special for i in row] for row in ids]
        )
        how = torch.rand(ids.shape)
        noisy = torch.where(chosen & (how < 0.8), tokenizer.mask_token_id, ids)
        noisy = torch.where(chosen & (how > 0.9), torch.randint(len(special), len(vocab), ids.shape), noisy)
        return noisy, torch.where(chosen, ids, NO_LOSS)

    loss = _train(
        model, [tokenizer(line)["input_ids"] for line in lines], corrupt, pad=tokenizer.pad_token_id
    )
    _save(model, tokenizer, folder)
    return loss


def _word_pieces(lines: Sequence[str], *, n_words: int = 300, n_pieces: int = 300) -> list[str]:
    """Special units, characters, the most frequent words, and the most frequent beginnings and continuations
    of two to four letters. (The library's trainer breaks ties at random: it never makes the same twice.)"""
    words = Counter(word.lower() for line in lines for word in Text.from_string(line).words)
    characters = sorted({c for word in words for c in word})
    pieces: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 2, min(start + 4, len(word)) + 1):
                pieces[("##" if start else "") + word[start:end]] += count
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    every = [
        *special,
        *characters,
        *(f"##{c}" for c in characters),
        *_top(words, n_words),
        *_top(pieces, n_pieces),
    ]
    return list(dict.fromkeys(every))


def _top(counts: Counter[str], n: int) -> list[str]:
    return sorted(counts, key=lambda key: (-counts[key], key))[:n]


def save_gpt(lines: Sequence[str], folder: Path) -> float:
    """A GPT-2 with byte-level pairs. Returns the last steps' mean loss."""
    from tokenizers.implementations import ByteLevelBPETokenizer
    from transformers import GPT2Config, GPT2LMHeadModel, GPT2Tokenizer

    end = "<|endoftext|>"
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        iter(lines), vocab_size=900, min_frequency=2, special_tokens=[end], show_progress=False
    )
    folder.mkdir(parents=True, exist_ok=True)
    vocab, merges = trained.save_model(str(folder))
    tokenizer = GPT2Tokenizer.from_pretrained(str(folder), model_max_length=256)
    Path(vocab).unlink()
    Path(merges).unlink()
    torch.manual_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=256,
            n_embd=WIDTH,
            n_layer=2,
            n_head=4,
            n_inner=2 * WIDTH,
            bos_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    stop = tokenizer.eos_token_id
    ids = [[stop, *tokenizer(line)["input_ids"], stop] for line in lines]
    loss = _train(model, ids, lambda batch: (batch, batch), pad=stop)
    _save(model, tokenizer, folder)
    return loss


def _train(
    model: Any,
    rows: list[list[int]],
    corrupt: Callable[[Tensor], tuple[Tensor, Tensor]],
    *,
    pad: int,
    epochs: int = 60,
    batch_size: int = 64,
) -> float:
    """AdamW over batches of similar length with a linear decay; the loss never looks at padding."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    steps = epochs * -(-len(rows) // batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 100, 1 - step / steps))
    order = random.Random(1)
    losses: list[float] = []
    model.train()
    for _ in range(epochs):
        for batch in _batches(rows, batch_size, order):
            ids, mask = _padded(batch, pad)
            inputs, labels = corrupt(ids)
            labels = torch.where(mask.bool(), labels, NO_LOSS)
            loss = model(input_ids=inputs, attention_mask=mask, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
    return sum(losses[-50:]) / len(losses[-50:])


def _batches(rows: list[list[int]], size: int, order: random.Random) -> list[list[list[int]]]:
    """All rows once, in batches of similar length, in random order."""
    by_length = sorted(order.sample(rows, len(rows)), key=len)
    batches = [by_length[at : at + size] for at in range(0, len(rows), size)]
    return order.sample(batches, len(batches))


def _padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Ids (B, S) padded on the right, and the mask of real ones."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), pad)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return ids, (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()


def _save(model: Any, tokenizer: Any, folder: Path) -> None:
    model.eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)
