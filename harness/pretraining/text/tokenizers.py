"""Subword vocabularies trained on a corpus: BERT's word pieces and GPT-2's byte pairs.

The same lines give the same vocabulary. Where the library would number single-letter pieces in the order of a
hash table, they are passed to it in alphabetical order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.errors import HarnessError

if TYPE_CHECKING:
    from transformers import BertTokenizer, GPT2Tokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""BERT's special tokens, with ids 0 to 4."""
END = "<|endoftext|>"
BYTES = 256


def word_piece_tokenizer(lines: Sequence[str], *, size: int, lower: bool, positions: int) -> BertTokenizer:
    """Train a ``BertTokenizer`` whose word pieces are merged by frequency (Wu et al. 2016, section 4.1).

    Args:
        lines: the training text.
        size: maximum number of pieces, including special tokens and single letters.
        lower: ignore case and accents.
        positions: maximum row length.

    Raises:
        HarnessError: the letters alone exceed ``size``.
    """
    from tokenizers import Tokenizer, models, trainers
    from transformers import BertTokenizer

    rules = BertTokenizer(vocab=dict.fromkeys(SPECIAL, 0), do_lower_case=lower).backend_tokenizer
    letters: set[str] = set()
    for line in lines:
        letters.update(rules.normalizer.normalize_str(line))
    inner = sorted(f"##{c}" for c in letters if not c.isspace())
    minimum = len(SPECIAL) + 2 * len(inner)  # every letter at the beginning of and within a word
    if size < minimum:
        raise HarnessError(
            f"encoder.vocabulary={size}: the letters of the corpus alone need {minimum} pieces"
        )
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.normalizer, learner.pre_tokenizer = rules.normalizer, rules.pre_tokenizer
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[*SPECIAL, *inner],
        show_progress=False,
        continuing_subword_prefix="##",
    )
    learner.train_from_iterator(lines, trainer)
    pieces = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    vocabulary = {piece: i for i, (piece, _) in enumerate(pieces)}
    return BertTokenizer(vocab=vocabulary, do_lower_case=lower, model_max_length=positions)


def byte_pair_tokenizer(lines: Sequence[str], *, size: int, positions: int) -> GPT2Tokenizer:
    """Train a ``GPT2Tokenizer`` whose byte pairs are merged by frequency.

    Pairs are merged within runs of letters, of digits or of other characters, never across them (Radford et
    al. 2019, section 2.2).

    Args:
        lines: the training text.
        size: maximum number of tokens, including the 256 bytes and the end of text.
        positions: maximum row length.

    Raises:
        HarnessError: ``size`` is less than the number of bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Tokenizer

    if size < BYTES + 1:
        raise HarnessError(
            f"encoder.vocabulary={size}: the bytes and the end of text alone need {BYTES + 1} tokens"
        )
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    learner.train_from_iterator(lines, trainer)
    model = json.loads(learner.to_str())["model"]
    # a merge is a list in newer versions of the format and "a b" in older ones
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    return GPT2Tokenizer(
        vocab=model["vocab"],
        merges=merges,  # type: ignore[arg-type]  # the library's annotation lacks pairs
        model_max_length=positions,
    )
