"""Makes the bundled demo again from nothing: ``python -m tasks.mini.make_demo [FOLDER]``.

Needs the ``dev`` extra (gensim) and some ten minutes on one core. The data files come out the same byte for
byte; the checkpoints do so on the same machine and library versions.
"""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.mini.sentences import Draw, corpus_line, ner_example, qa_example, topic_example

SIZES = {"train": 160, "dev": 60, "test": 100}
CORPUS_LINES = 4000


def make_data(folder: Path) -> None:
    """Write train, dev and test of the three tasks."""
    for split, size in SIZES.items():
        _write(folder / f"topic/{split}.csv", _topic(_distinct(topic_example, split, size)))
        _write(folder / f"ner/{split}.txt", _ner(_distinct(ner_example, split, size)))
        _write(folder / f"qa/{split}.json", _qa(split, _distinct(qa_example, split, size)))


def make_corpus(folder: Path) -> list[str]:
    """Write and return the distinct lines of the corpus; none of them is a labelled text of dev or test."""
    draw = Draw(random.Random("corpus"), seen=False)
    lines = dict.fromkeys(corpus_line(draw) for _ in range(CORPUS_LINES))
    held_out = _held_out_texts()
    kept = [line for line in lines if line not in held_out]
    _write(folder / "corpus.txt", "".join(f"{line}\n" for line in kept))
    return kept


def _held_out_texts() -> set[str]:
    out: set[str] = set()
    for split in ("dev", "test"):
        out |= {text for text, _ in _distinct(topic_example, split, SIZES[split])}
        out |= {" ".join(w for w, _ in row) for row in _distinct(ner_example, split, SIZES[split])}
        out |= {row[0] for row in _distinct(qa_example, split, SIZES[split])}
    return out


def _distinct(make: Callable[[Draw], Any], split: str, size: int) -> list[Any]:
    """``size`` examples, none twice. Only the test split draws from the whole word lists."""
    draw = Draw(random.Random(f"{make.__name__} {split}"), seen=split != "test")
    found: dict[str, Any] = {}
    while len(found) < size:
        example = make(draw)
        found.setdefault(repr(example), example)
    return list(found.values())


def _topic(rows: list[tuple[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("text", "label"))
    writer.writerows(rows)
    return out.getvalue()


def _ner(rows: list[list[tuple[str, str]]]) -> str:
    return "\n".join("".join(f"{word} {tag}\n" for word, tag in row) for row in rows)


def _qa(split: str, rows: list[tuple[str, str, str, int]]) -> str:
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": f"{split}-{i}",
                    "question": question,
                    "answers": [{"text": answer, "answer_start": start}],
                }
            ],
        }
        for i, (context, question, answer, start) in enumerate(rows)
    ]
    data = {"version": "1.1", "data": [{"title": "demo", "paragraphs": paragraphs}]}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def main(argv: list[str]) -> int:
    from tasks.mini import pretrain

    folder = Path(argv[0]) if argv else Path(__file__).parent
    make_data(folder)
    lines = make_corpus(folder)
    print(f"{len(lines)} lines of corpus in {folder}", flush=True)
    pretrain.torch.set_num_threads(1)
    pretrain.save_vectors(lines, folder / "vectors.txt.gz")
    print(f"bert: loss {pretrain.save_bert(lines, folder / 'bert'):.3f}", flush=True)
    print(f"gpt: loss {pretrain.save_gpt(lines, folder / 'gpt'):.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
