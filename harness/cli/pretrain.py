"""``harness pretrain encoder=FAMILY corpus=... output=DIR`` makes an encoder from a plain text corpus."""

from __future__ import annotations

import math
import shlex
import sys
import time
import warnings
from typing import Any

from harness.errors import HarnessError

USAGE = """\
usage: harness pretrain encoder=FAMILY [encoder.size=mini|small|base] corpus=FILE_OR_DIR output=DIR [...]

Makes an encoder from a plain text corpus (a sentence or paragraph a line, a blank line between documents) and
measures it on held-out documents. A run that was killed continues when the same command is given again.

families: {families}

  budget.epochs= budget.tokens= budget.seconds= budget.steps=   how long; the first that is reached
  seed=0  held_out=0.05  overwrite=always  trainer.precision=bf16-mixed  trainer.threads=1
  trainer.devices=2  trainer.logger=wandb  encoder.tokenizer=OUTPUT   the vocabulary of another one
  experiment=controlled_pretraining   a BERT and a GPT that differ in nothing but the objective
  --cfg job   prints the composed configuration and trains nothing

example:
  harness pretrain encoder=bert encoder.size=mini corpus=corpus.txt.gz output=my-bert budget.seconds=150
  harness encoder=bert encoder.path=my-bert strategy=full optimizer.lr=1e-3 task=..."""


PUBLISHED_RATES = ("bert", "gpt")
SMALL, SMALL_RATE = 30_000_000, "1e-3"
"""Below so many parameters a model is fine-tuned at this rate."""


def main(argv: list[str]) -> int:
    """Exit code 0; HarnessError when refused."""
    from harness.pretraining import config as settings

    if not argv or any(a in ("-h", "--help") for a in argv):
        print(USAGE.format(families=", ".join(settings.families())))
        return 0
    show = "--cfg" in argv
    arguments = [a for a in argv if a not in ("--cfg", "job")]
    if bad := [a for a in arguments if a.startswith("-")]:
        raise HarnessError(f"{bad[0]}: no such option; one encoder is made at a time, by key=value")
    config = settings.checked(settings.compose(arguments))
    if show:
        _print(config)
        return 0
    from harness.pretraining.job import run_job

    begin = time.monotonic()
    name, size = config["encoder"]["name"], config["encoder"]["size"]

    def say(line: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {line}", file=sys.stderr, flush=True)

    say(f"{name} ({size}) from {config['corpus']}")
    with warnings.catch_warnings():
        # deprecations speak of code, not of results
        for kind in (FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", kind)
        record = run_job(config, say=say, command=shlex.join(["harness", "pretrain", *argv]))
    print(summary(record))
    print(next_command(record, name=name, output=config["output"]))
    return 0


def next_command(record: dict[str, Any], *, name: str, output: str) -> str:
    """How the encoder is used. The recipes of these families are published for models of a hundred million
    parameters; fine-tuned at their rates a small one stays where it is."""
    family = record.get("loads_as", name)
    small = family in PUBLISHED_RATES and record["encoder_parameters"] < SMALL
    rate = f" optimizer.lr={SMALL_RATE}" if small else ""
    return f"harness encoder={family} encoder.path={shlex.quote(output)}{rate}"


def summary(record: dict[str, Any]) -> str:
    """What came out, in a line or two."""
    seen, held = record["seen"], record["held_out"]
    told = (
        f"{record['family']} ({record['size']}): {record['parameters']:,} parameters, "
        f"{seen['tokens']:,} tokens "
        f"({seen['epochs']:.1f} passes) in {seen['seconds']:.0f} s"
    )
    if held is None:
        return told
    if held["perplexity_per_word"] is None:
        shown = [k for k in held if k.startswith("masked") or k == "pseudo_perplexity"]
        more = ", ".join(f"{k} {held[k]:.3f}" for k in shown if held[k] is not None)
        if held.get("unigram_nll") is not None:
            more += f" (by the pieces' frequencies alone {held['unigram_nll'] / held['tokens']:.3f})"
        return f"{told}\nheld out: {more or 'no measure'}; no perplexity per word: {held['undefined']}"
    alone = ""
    if held.get("unigram_nll") is not None:
        reached = math.exp(min(700.0, held["unigram_nll"] / held["words"]))
        alone = f"; by the tokens' frequencies alone {reached:.1f}"
    unknown = f", {held['unknown_share']:.1%} of tokens unknown" if held["unknown_share"] else ""
    return (
        f"{told}\nheld out: perplexity {held['perplexity_per_word']:.1f} per word "
        f"({held['nll'] / held['words']:.3f} nats{alone}), "
        f"{held['perplexity_per_token']:.1f} per token{unknown}"
    )


def _print(config: dict[str, Any]) -> None:
    import yaml

    print(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), end="")
