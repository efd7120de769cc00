"""The same recipe in transformers' own Trainer, to check the harness's numbers against.

    python -m benchmarks.reference_trainer CHECKPOINT TRAIN TEST --seeds 0 1 2

Reads the harness's own task (so labels and splits are the same), trains with ``transformers.Trainer`` (which
needs the ``accelerate`` package) and prints test accuracy a seed. Defaults: three epochs, batches of 32, rate
5e-5, linear with 10 % warm-up, decay 0.01, the last epoch, no dev split.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def examples(train: str, test: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(text, label) of both splits, as the harness's classification task reads them."""
    from harness_tasks.classification.task import TextClassification

    task = TextClassification(name="reference", train=train, test=test, dev="none", label_level="coarse")
    splits = task.splits()
    pairs = [[(e.texts[0].text, str(e.gold)) for e in part] for part in (splits.train, splits.test)]
    return pairs[0], pairs[1]


def run(checkpoint: str, data: Any, *, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Accuracy and seconds of one seed."""
    import transformers as hf

    train, test = data
    labels = sorted({label for _, label in train})
    tokenizer = hf.AutoTokenizer.from_pretrained(checkpoint)

    def rows(pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
        encoded = tokenizer([t for t, _ in pairs], truncation=True, max_length=512)
        ids = [labels.index(label) if label in labels else -1 for _, label in pairs]
        return [
            {"input_ids": i, "attention_mask": m, "labels": y}
            for i, m, y in zip(encoded["input_ids"], encoded["attention_mask"], ids, strict=True)
        ]

    hf.set_seed(seed)
    model = hf.AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=len(labels))
    with tempfile.TemporaryDirectory() as folder:
        arguments = hf.TrainingArguments(
            output_dir=folder,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=options.batch_size,
            per_device_eval_batch_size=64,
            learning_rate=options.lr,
            weight_decay=0.01,
            warmup_steps=0.1,
            lr_scheduler_type="linear",
            train_sampling_strategy="group_by_length" if options.group else "random",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            seed=seed,
            use_cpu=True,
        )
        trainer = hf.Trainer(
            model, arguments, train_dataset=rows(train), data_collator=hf.DataCollatorWithPadding(tokenizer)
        )
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin
        test_rows = rows(test)
        logits: Any = trainer.predict(test_rows).predictions  # type: ignore[arg-type]
        predicted = np.asarray(logits).argmax(-1)
    gold = np.array([r["labels"] for r in test_rows])
    return {"seed": seed, "accuracy": float((predicted == gold).mean()), "train_seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--group", action="store_true", help="batches of similar length")
    options = parser.parse_args()
    data = examples(options.train, options.test)
    for seed in options.seeds:
        print(json.dumps(run(str(options.checkpoint), data, seed=seed, options=options)), flush=True)


if __name__ == "__main__":
    main()
