"""AWD-LSTM tokens of real text in two scripts: every word has a token that overlaps the word."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.encoders.awd_lstm.encoder import load
from tests.helpers.tiny_awd_lstm import awd_lstm_folder

FILES = {"wikitext2_small/valid.txt": (0, 0), "korsts/dev.tsv": (5, 1), "sst2/dev.txt": (0, 0)}


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize("backwards", [False, True])
def test_every_word_has_a_token(shared_data: Path, tmp_path: Path, name: str, backwards: bool) -> None:
    column, header = FILES[name]
    lines = (shared_data / "data" / name).read_text(encoding="utf-8").split("\n")[header:400]
    texts = [Text.from_string(line.split("\t")[column]) for line in lines if line.strip()]
    encoder = load(name="x", path=awd_lstm_folder(), cache_dir=tmp_path, backwards=backwards)
    windowing = WindowOptions(max_length=64, stride=16)
    for text, rows in zip(texts, encoder.tokenizer.tokenize(texts, windowing), strict=True):
        owned = set()
        for row in rows:
            for word, token in enumerate(row.word_to_token.tolist()):
                if token >= 0:
                    owned.add(word)
                    (start, end), (low, high) = row.offsets[token].tolist(), text.spans[word]
                    assert start < high, (text.words[word], text.text[start:end])
                    assert end > low, (text.words[word], text.text[start:end])
        assert owned == set(range(len(text)))
