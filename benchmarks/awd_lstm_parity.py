"""Our AWD-LSTM beside fastai's, with the same random weights, and our tokens beside fastai's.

Needs an environment that holds fastai 2.8 and spaCy besides this project's own requirements:

    python3 -m venv fastai_env
    fastai_env/bin/pip install "fastai==2.8.*" "torch>=2.6,<2.14" spacy regex safetensors filelock hydra-core
    PYTHONPATH=. fastai_env/bin/python benchmarks/awd_lstm_parity.py --lines FILE [FILE ...]
    PYTHONPATH=. fastai_env/bin/python benchmarks/awd_lstm_parity.py --golden tests/data/awd_lstm

The first prints the figures: largest differences of states, logits, pooled vectors and classifier outputs at
the published sizes, over texts of several chunks, each by itself and in one batch; and how many of 1,000
lines, drawn from the files with seed 0, have equal tokens. The second writes the small model, the vectors and
the tokens that the tests compare with.

fastai's ``SentenceEncoder`` takes the rows of a batch for sorted such that those which still have text at a
chunk's start come first. With its own padding that holds where lengths differ by whole chunks (72), not else:
then it returns zeros for the last tokens of some short texts. So the reference is each text by itself, and the
batch compared has lengths that differ by whole chunks.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fastai.callback.core import Callback  # noqa: F401 - fastai's modules expect to be imported in this order
from fastai.learner import save_model
from fastai.optimizer import Adam
from fastai.text.core import SpacyTokenizer, TokenizeWithRules
from fastai.text.models.awdlstm import AWD_LSTM, awd_lstm_clas_config, awd_lstm_lm_config
from fastai.text.models.core import get_language_model, get_text_classifier, masked_concat_pool

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch, pool
from harness.encoders.awd_lstm.checkpoint import write_fastai
from harness.encoders.awd_lstm.encoder import IDS, AwdLstmEncoder, load, load_language_model
from harness.encoders.awd_lstm.fastai_rules import BOS, fastai_tokens

SPECIALS = ["xxunk", "xxpad", "xxbos", "xxeos", "xxfld", "xxrep", "xxwrep", "xxup", "xxmaj"]
PAD = 1
CHUNK = 72
SENTENCES = [
    "The harbour was quiet, and nobody on the pier said a word.",
    "Don't you think they're LATE again?! I'd've called; she can't, he won't.",
    "WOW!!! That was sooooo good &amp; cheap ($5.50/kg, 10% off) :-)",
    "no no no no, Dr. Smith-Jones of the U.S. Navy paid 1,000.5 at 10am...",
    "See www.example.org/a?b=c or write to someone@example.org #news @noon",
    "It&#39;s a well-known, 3-4 year-old \\n thing -- isn't it? <br />Yes , it's .",
    "  two  blanks\tand a tab; e.g. this, i.e. that, a.m. and p.m. (sic)",
    "서울에서 왔다. 🚀🚀 café e\u0301te “quoted” — ‘so’ …",
    "He said: 'the <unk> @-@ ending of O'Brien's rock'n'roll' cost 5kg*3+4=y",
    "I",
    "",
    "İstanbul a\u200bb ½ C++ x/y\\z [a]{b}(c) _d_ ~e~ =f= 12:30 7°C. ain't gonna",
]


def randomised(model: torch.nn.Module, *, scale: float) -> torch.nn.Module:
    """Weights large enough for context to show, and statistics for the batch norms."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
            elif value.is_floating_point():
                value.mul_(scale).add_(torch.randn_like(value) * 0.02)
    return model.eval()


def texts(lengths: list[int], words: int) -> list[list[int]]:
    """Ids of random texts, all beginning with xxbos, the longest first."""
    rng = random.Random(0)
    return [[2] + [rng.randrange(9, words) for _ in range(n - 1)] for n in sorted(lengths, reverse=True)]


def chunk_padded(rows: list[list[int]]) -> torch.Tensor:
    """As fastai's ``pad_input_chunk``: whole chunks of padding in front, the rest behind."""
    width = max(map(len, rows))
    out = torch.full((len(rows), width), PAD)
    for i, row in enumerate(rows):
        front = (width - len(row)) // CHUNK * CHUNK
        out[i, front : front + len(row)] = torch.tensor(row)
    return out


def right_padded(rows: list[list[int]]) -> TokenBatch:
    mask = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.bool)
    ids = torch.zeros(mask.shape, dtype=torch.long)
    for i, row in enumerate(rows):
        mask[i, : len(row)] = True
        ids[i, : len(row)] = torch.tensor(row)
    zero = torch.zeros_like(ids)
    none = torch.zeros(len(rows), dtype=torch.long)
    return TokenBatch(
        {IDS: ids}, mask, zero - 1, torch.stack([zero, zero], -1), zero, zero[:, :1] - 1, none, none
    )


def fastai_models(words: int, sizes: dict[str, int], *, scale: float) -> tuple[Any, Any]:
    """A language model and a classifier over the same encoder."""
    lm: Any = randomised(get_language_model(AWD_LSTM, words, {**awd_lstm_lm_config, **sizes}), scale=scale)
    classifier = get_text_classifier(AWD_LSTM, words, 4, config={**awd_lstm_clas_config, **sizes})
    classifier[0].module.load_state_dict(lm[0].state_dict())
    randomised(classifier[1], scale=scale)
    return lm, classifier.eval()


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


def alone(classifier: Any, rows: list[list[int]]) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """fastai's states (S, H) of each text read by itself, and all pooled vectors and classifier outputs."""
    read = [classifier[0](torch.tensor([row])) for row in rows]
    pooled = torch.cat([masked_concat_pool(states, mask, CHUNK) for states, mask in read])
    return [states[0] for states, _ in read], pooled, classifier[1].layers(pooled)


@torch.no_grad()
def compare(lm: Any, classifier: Any, encoder: AwdLstmEncoder, rows: list[list[int]]) -> dict[str, float]:
    """Largest differences between fastai's numbers, of each text by itself, and ours, of one batch."""
    ours = encoder.eval()(right_padded(rows), all_layers=True)
    states, pooled, outputs = alone(classifier, rows)
    tokens = right_padded(rows)
    mine = torch.cat([s[: len(r)] for s, r in zip(ours.last_hidden_state, rows, strict=True)])
    own = pool(ours.last_hidden_state, tokens, encoder.pooling)
    even = [r for r in rows if (len(rows[0]) - len(r)) % CHUNK == 0]
    together, mask = classifier[0](chunk_padded(even))
    batch = torch.cat([t[~m] for t, m in zip(together, mask, strict=True)])
    even_mine = torch.cat(
        [s[: len(r)] for s, r in zip(ours.last_hidden_state, rows, strict=True) if r in even]
    )
    lm.reset()
    square = torch.tensor([r[: len(rows[-1])] for r in rows])
    logits = lm(square)[0]
    head = encoder.language_model()[0].eval()(square).logits[..., : logits.shape[-1]]
    return {
        "states": gap(torch.cat(states), mine),
        "states of a batch": gap(batch, even_mine),
        "pooled": gap(pooled, own),
        "logits": gap(logits, head),
        "classifier": gap(outputs, classifier[1].layers(own)),
        "size of states": float(mine.abs().max()),
    }


def same(folder: Path, rows: list[list[int]], reference: torch.Tensor) -> bool:
    encoder = load(name="x", path=folder, cache_dir=folder)
    return torch.equal(encoder.eval()(right_padded(rows)).last_hidden_state, reference)


def figures(words: int) -> None:
    """Print the differences at the published sizes, for every way a model gets from fastai to us and back."""
    torch.manual_seed(0)
    lm, classifier = fastai_models(words, {}, scale=1.5)
    vocabulary = SPECIALS + [f"w{i}" for i in range(words - len(SPECIALS))]
    rows = texts([400, 333, 328, 150, 112, 73, 72, 40, 20], words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "itos.pkl").write_bytes(pickle.dumps(vocabulary))
        optimizer = Adam(list(classifier.parameters()), lr=1e-3)
        sum(p.sum() for p in classifier.parameters()).backward()
        held = {k: v.clone() for k, v in classifier.state_dict().items()}
        optimizer.step()  # so that the file holds an optimizer's state
        classifier.load_state_dict(held)
        file = folder / "weights.pth"
        save_model(file, lm, None)
        encoder = load(name="x", path=folder, cache_dir=folder)
        reference = encoder.eval()(right_padded(rows)).last_hidden_state.detach()
        print("language model", compare(lm, classifier, encoder, rows))
        save_model(file, classifier, optimizer)
        print("classifier with optimizer, equal:", same(folder, rows, reference))
        torch.save(lm[0].state_dict(), file)
        print("encoder alone, equal:", same(folder, rows, reference))
        save_model(folder / "weights.pth", lm, None)
        back, _ = load_language_model(folder)
        write_fastai(folder / "back", back.weights(), vocabulary)
        lm.load_state_dict(torch.load(folder / "back" / "model.pth", weights_only=True), strict=True)
        print("written by us, read by fastai:", compare(lm, classifier, encoder, rows)["logits"])


def tokens(lines: list[str]) -> list[list[str]]:
    return [list(t) for t in TokenizeWithRules(SpacyTokenizer("en"))(lines)]


def lines_of(files: list[str], most: int) -> list[str]:
    out = []
    for file in files:
        data = Path(file).read_bytes()
        try:
            out += data.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            out += data.decode("latin-1").split("\n")
    lines = [line.strip("\r") for line in out if line.strip()]
    return random.Random(0).sample(lines, min(most, len(lines)))


def compare_tokens(files: list[str], most: int) -> None:
    lines = lines_of(files, most)
    wrong = 0
    for line, theirs in zip(lines, tokens(lines), strict=True):
        ours = [BOS, *(t.text for t in fastai_tokens(line))]
        if ours != theirs:
            wrong += 1
            print("differs:", repr(line[:100]), ours[:30], theirs[:30], sep="\n  ")
    print(f"tokens: {len(lines) - wrong} of {len(lines)} lines equal")


def golden(folder: Path) -> None:
    """A small model as fastai saves it, what it computes, and fastai's tokens of :data:`SENTENCES`."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    found = tokens(SENTENCES)
    vocabulary = SPECIALS + sorted({t for ts in found for t in ts} - set(SPECIALS))
    lm, classifier = fastai_models(len(vocabulary), {"emb_sz": 6, "n_hid": 10}, scale=2.0)
    optimizer = Adam(list(lm.parameters()), lr=1e-3)
    sum(p.sum() for p in lm.parameters()).backward()
    held = {k: v.clone() for k, v in lm.state_dict().items()}
    optimizer.step()  # so that the file holds an optimizer's state
    lm.load_state_dict(held)
    save_model(folder / "model.pth", lm, optimizer)
    (folder / "itos.pkl").write_bytes(pickle.dumps(vocabulary))
    numbers = {word: i for i, word in enumerate(vocabulary)}
    rows = sorted(([numbers[t] for t in ts] for ts in found), key=len, reverse=True)
    rows.insert(0, [2, *(rows[0][1:] * 5)][:160])
    with torch.no_grad():
        states, pooled, outputs = alone(classifier, rows)
        lm.reset()
        out = {
            "sentences": SENTENCES,
            "tokens": found,
            "rows": rows,
            "states": [_short(s) for s in states],
            "pooled": _short(pooled),
            "classifier": _short(outputs),
            "logits": _short(lm(torch.tensor([rows[1]]))[0][0, -1]),
            "head": {k: _short(v) for k, v in classifier[1].layers.state_dict().items()},
        }
    (folder.parent / f"{folder.name}_expected.json").write_text(
        json.dumps(out, ensure_ascii=False), encoding="utf-8"
    )
    encoder = load(name="x", path=folder, cache_dir=folder)
    print(compare(lm, classifier, encoder, rows))
    texts = [Text.from_string(s) for s in SENTENCES]
    ours = [rows[0].inputs[IDS].tolist() for rows in encoder.tokenizer.tokenize(texts, WindowOptions())]
    print("ids equal:", ours == [[numbers[t] for t in ts] for ts in found])


def _short(x: torch.Tensor) -> Any:
    """Nested lists of eight significant digits."""
    flat = [float(f"{v:.8g}") for v in x.double().flatten().tolist()]
    return np.array(flat).reshape(tuple(x.shape)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", nargs="*", default=[], help="text files whose lines are tokenised")
    parser.add_argument("--most", type=int, default=1000, help="lines drawn from them")
    parser.add_argument("--golden", type=Path, help="write the tests' golden files here, and nothing else")
    parser.add_argument("--words", type=int, default=5000, help="size of the vocabulary")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.golden:
        golden(given.golden)
        return
    if given.lines:
        compare_tokens(given.lines, given.most)
    figures(given.words)


if __name__ == "__main__":
    main()
