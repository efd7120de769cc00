"""Compare this project's AWD-LSTM and its tokens with fastai's, using the same random weights.

Needs an environment with fastai 2.8 and spaCy in addition to this project's requirements:

    python3 -m venv fastai_env
    fastai_env/bin/pip install "fastai==2.8.*" "torch>=2.6,<2.14" spacy regex safetensors filelock hydra-core
    PYTHONPATH=. fastai_env/bin/python benchmarks/awd_lstm_parity.py --lines FILE [FILE ...]
    PYTHONPATH=. fastai_env/bin/python benchmarks/awd_lstm_parity.py --golden FOLDER

The first command prints the largest differences of states, logits, pooled vectors and classifier outputs at
the published sizes, for texts of several chunks, one at a time and in one batch; and how many of 1,000 lines,
drawn from the files with seed 0, have equal tokens. The second command writes the small model, vectors and
tokens that the tests use as reference; their FOLDER is tests/encoders/awd_lstm/data/awd_lstm.

fastai's ``SentenceEncoder`` assumes that the rows of a batch are sorted such that rows with text at a chunk's
start come first. With fastai's padding this holds only if lengths differ by multiples of the chunk size (72);
otherwise it returns zeros for the last tokens of some short texts. Therefore the reference states are those
of each text alone, and the compared batch has lengths that differ by multiples of the chunk size.
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


def randomise(model: torch.nn.Module, *, scale: float) -> torch.nn.Module:
    """Draw weights that make states depend visibly on the context, and statistics for the batch norms."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
            elif value.is_floating_point():
                value.mul_(scale).add_(torch.randn_like(value) * 0.02)
    return model.eval()


def texts(lengths: list[int], words: int) -> list[list[int]]:
    """Draw ids of random texts that start with xxbos, the longest text first."""
    rng = random.Random(0)
    return [[2] + [rng.randrange(9, words) for _ in range(n - 1)] for n in sorted(lengths, reverse=True)]


def chunk_padded(rows: list[list[int]]) -> torch.Tensor:
    """Pad like fastai's ``pad_input_chunk``: complete chunks of padding in front, the rest at the end."""
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
    """Build a language model and a classifier with the same encoder."""
    lm: Any = randomise(get_language_model(AWD_LSTM, words, {**awd_lstm_lm_config, **sizes}), scale=scale)
    classifier = get_text_classifier(AWD_LSTM, words, 4, config={**awd_lstm_clas_config, **sizes})
    classifier[0].module.load_state_dict(lm[0].state_dict())
    randomise(classifier[1], scale=scale)
    return lm, classifier.eval()


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


def alone(classifier: Any, rows: list[list[int]]) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """Return fastai's states (S, H) of each text alone, and all pooled vectors and classifier outputs."""
    encoded = [classifier[0](torch.tensor([row])) for row in rows]
    pooled = torch.cat([masked_concat_pool(states, mask, CHUNK) for states, mask in encoded])
    return [states[0] for states, _ in encoded], pooled, classifier[1].layers(pooled)


@torch.no_grad()
def compare(lm: Any, classifier: Any, encoder: AwdLstmEncoder, rows: list[list[int]]) -> dict[str, float]:
    """Return the largest differences between fastai's results of single texts and ours of one batch."""
    ours = encoder.eval()(right_padded(rows), all_layers=True)
    states, pooled, outputs = alone(classifier, rows)
    tokens = right_padded(rows)
    our_states = torch.cat([s[: len(r)] for s, r in zip(ours.last_hidden_state, rows, strict=True)])
    our_pooled = pool(ours.last_hidden_state, tokens, encoder.pooling)
    even = [r for r in rows if (len(rows[0]) - len(r)) % CHUNK == 0]
    together, mask = classifier[0](chunk_padded(even))
    batch = torch.cat([t[~m] for t, m in zip(together, mask, strict=True)])
    our_even_states = torch.cat(
        [s[: len(r)] for s, r in zip(ours.last_hidden_state, rows, strict=True) if r in even]
    )
    lm.reset()
    square = torch.tensor([r[: len(rows[-1])] for r in rows])
    logits = lm(square)[0]
    head = encoder.language_model()[0].eval()(square).logits[..., : logits.shape[-1]]
    return {
        "states": gap(torch.cat(states), our_states),
        "states of a batch": gap(batch, our_even_states),
        "pooled": gap(pooled, our_pooled),
        "logits": gap(logits, head),
        "classifier": gap(outputs, classifier[1].layers(our_pooled)),
        "largest state": float(our_states.abs().max()),
    }


def same(folder: Path, rows: list[list[int]], reference: torch.Tensor) -> bool:
    encoder = load(name="x", path=folder, cache_dir=folder)
    return torch.equal(encoder.eval()(right_padded(rows)).last_hidden_state, reference)


def print_differences(words: int) -> None:
    """Print the differences at the published sizes, for every way of exchanging models with fastai."""
    torch.manual_seed(0)
    lm, classifier = fastai_models(words, {}, scale=1.5)
    vocabulary = SPECIALS + [f"w{i}" for i in range(words - len(SPECIALS))]
    rows = texts([400, 333, 328, 150, 112, 73, 72, 40, 20], words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "itos.pkl").write_bytes(pickle.dumps(vocabulary))
        optimizer = Adam(list(classifier.parameters()), lr=1e-3)
        sum(p.sum() for p in classifier.parameters()).backward()
        weights = {k: v.clone() for k, v in classifier.state_dict().items()}
        optimizer.step()  # so that the file contains an optimizer state
        classifier.load_state_dict(weights)
        file = folder / "weights.pth"
        save_model(file, lm, None)
        encoder = load(name="x", path=folder, cache_dir=folder)
        reference = encoder.eval()(right_padded(rows)).last_hidden_state.detach()
        print("language model", compare(lm, classifier, encoder, rows))
        save_model(file, classifier, optimizer)
        print("classifier with optimizer, equal:", same(folder, rows, reference))
        torch.save(lm[0].state_dict(), file)
        print("encoder only, equal:", same(folder, rows, reference))
        save_model(folder / "weights.pth", lm, None)
        back, _ = load_language_model(folder)
        write_fastai(folder / "back", back.weights(), vocabulary)
        lm.load_state_dict(torch.load(folder / "back" / "model.pth", weights_only=True), strict=True)
        print("written by us, read by fastai:", compare(lm, classifier, encoder, rows)["logits"])


def tokens(lines: list[str]) -> list[list[str]]:
    return [list(t) for t in TokenizeWithRules(SpacyTokenizer("en"))(lines)]


def sample_lines(files: list[str], max_lines: int) -> list[str]:
    out = []
    for file in files:
        data = Path(file).read_bytes()
        try:
            out += data.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            out += data.decode("latin-1").split("\n")
    lines = [line.strip("\r") for line in out if line.strip()]
    return random.Random(0).sample(lines, min(max_lines, len(lines)))


def compare_tokens(files: list[str], max_lines: int) -> None:
    lines = sample_lines(files, max_lines)
    wrong = 0
    for line, reference in zip(lines, tokens(lines), strict=True):
        ours = [BOS, *(t.text for t in fastai_tokens(line))]
        if ours != reference:
            wrong += 1
            print("differs:", repr(line[:100]), ours[:30], reference[:30], sep="\n  ")
    print(f"tokens: {len(lines) - wrong} of {len(lines)} lines equal")


def golden(folder: Path) -> None:
    """Write a small model in fastai's format, its outputs, and fastai's tokens of :data:`SENTENCES`."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    sentence_tokens = tokens(SENTENCES)
    vocabulary = SPECIALS + sorted({t for ts in sentence_tokens for t in ts} - set(SPECIALS))
    lm, classifier = fastai_models(len(vocabulary), {"emb_sz": 6, "n_hid": 10}, scale=2.0)
    optimizer = Adam(list(lm.parameters()), lr=1e-3)
    sum(p.sum() for p in lm.parameters()).backward()
    weights = {k: v.clone() for k, v in lm.state_dict().items()}
    optimizer.step()  # so that the file contains an optimizer state
    lm.load_state_dict(weights)
    save_model(folder / "model.pth", lm, optimizer)
    (folder / "itos.pkl").write_bytes(pickle.dumps(vocabulary))
    numbers = {word: i for i, word in enumerate(vocabulary)}
    rows = sorted(([numbers[t] for t in ts] for ts in sentence_tokens), key=len, reverse=True)
    rows.insert(0, [2, *(rows[0][1:] * 5)][:160])
    with torch.no_grad():
        states, pooled, outputs = alone(classifier, rows)
        lm.reset()
        out = {
            "sentences": SENTENCES,
            "tokens": sentence_tokens,
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
    print("ids equal:", ours == [[numbers[t] for t in ts] for ts in sentence_tokens])


def _short(x: torch.Tensor) -> Any:
    """Convert to nested lists, rounded to eight significant digits."""
    flat = [float(f"{v:.8g}") for v in x.double().flatten().tolist()]
    return np.array(flat).reshape(tuple(x.shape)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", nargs="*", default=[], help="text files whose lines are tokenised")
    parser.add_argument("--max-lines", type=int, default=1000, help="number of lines drawn from them")
    parser.add_argument("--golden", type=Path, help="only write the tests' golden files into this folder")
    parser.add_argument("--words", type=int, default=5000, help="vocabulary size")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.golden:
        golden(args.golden)
        return
    if args.lines:
        compare_tokens(args.lines, args.max_lines)
    print_differences(args.words)


if __name__ == "__main__":
    main()
