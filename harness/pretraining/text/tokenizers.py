"""Vocabularies of sub-words made from a corpus: BERT's word pieces and GPT-2's byte pairs.

The same lines give the same vocabulary: where the library would number the pieces of one letter in the order
of a hash table, they are given to it in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.errors import HarnessError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END = "<|endoftext|>"


def word_piece_tokenizer(lines: Sequence[str], *, size: int, lower: bool, positions: int) -> Any:
    """A ``BertTokenizer`` whose word pieces were merged by frequency (Wu et al. 2016, section 4.1).

    Args:
        lines: the training text.
        size: most pieces, special ones and single letters included.
        lower: ignore case and accents.
        positions: longest row.

    Raises:
        HarnessError: the letters alone are more than ``size``.
    """
    from tokenizers import Tokenizer, models, trainers
    from transformers import BertTokenizer

    rules = BertTokenizer(vocab=dict.fromkeys(SPECIAL, 0), do_lower_case=lower).backend_tokenizer
    letters: set[str] = set()
    for line in lines:
        letters.update(rules.normalizer.normalize_str(line))
    inner = sorted(f"##{c}" for c in letters if not c.isspace())
    least = len(SPECIAL) + 2 * len(inner)
    if size < least:
        raise HarnessError(f"encoder.vocabulary={size}: the letters of the corpus alone make {least} pieces")
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


def byte_pair_tokenizer(lines: Sequence[str], *, size: int, positions: int) -> Any:
    """A ``GPT2Tokenizer`` whose byte pairs were merged by frequency within runs of letters, of digits or of
    other characters, never across (Radford et al. 2019, section 2.2).

    Args:
        lines: the training text.
        size: most tokens, the 256 bytes and the end of text included.
        positions: longest row.

    Raises:
        HarnessError: ``size`` is less than the bytes take.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Tokenizer

    if size < 257:
        raise HarnessError(f"encoder.vocabulary={size}: the bytes and the end of text alone make 257 tokens")
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
    import json

    model = json.loads(learner.to_str())["model"]
    merges: Any = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    return GPT2Tokenizer(vocab=model["vocab"], merges=merges, model_max_length=positions)
