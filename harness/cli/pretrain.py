"""``harness pretrain encoder=FAMILY corpus=... output=DIR``: train an encoder on a plain text corpus."""

from __future__ import annotations

import math
import shlex
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError

USAGE = """\
usage: harness pretrain encoder=FAMILY [encoder.size=mini|small|base] corpus=FILE_OR_DIR output=DIR [...]

Trains an encoder on a plain text corpus (one sentence or paragraph per line, blank lines between documents)
and evaluates it on held-out documents. An interrupted run resumes when the same command is run again.

families: {families}

  budget.epochs= budget.tokens= budget.seconds= budget.steps=   budget; the first limit reached ends training
  seed=0  held_out=0.05  overwrite=always  trainer.precision=bf16-mixed  trainer.threads=1
  trainer.devices=2  trainer.logger=wandb  encoder.tokenizer=OUTPUT   reuse the vocabulary of another output
  experiment=controlled_pretraining   a BERT and a GPT that differ only in the objective
  --cfg job   print the composed configuration without training
  --config-dir DIR   add families of your own: DIR/pretrain/encoder/NAME.yaml

example:
  harness pretrain encoder=bert encoder.size=mini corpus=corpus.txt.gz output=my-bert budget.seconds=150
  harness encoder=bert encoder.path=my-bert strategy=full optimizer.lr=1e-3 task=..."""


PUBLISHED_RATES = ("bert", "gpt")
"""Families whose fine-tuning recipes are published for models of about 100 million parameters."""
SMALL_MODEL, SMALL_MODEL_LR = 30_000_000, "1e-3"
"""Models with fewer parameters do not train at the published learning rates; this one works."""


def main(argv: list[str]) -> int:
    """Run the command; exit code 0, or HarnessError."""
    from harness.pretraining.config import compose, families, validate_config

    config_dir, arguments = _config_dir(argv)
    if not argv or any(a in ("-h", "--help") for a in argv):
        print(USAGE.format(families=", ".join(families(config_dir))))
        return 0
    show_config = "--cfg" in arguments
    arguments = [a for a in arguments if a not in ("--cfg", "job")]
    if flags := [a for a in arguments if a.startswith("-")]:
        raise HarnessError(
            f"{flags[0]}: unknown option; give options as key=value (sweeps are not supported)"
        )
    config = validate_config(compose(arguments, config_dir=config_dir))
    if show_config:
        _print_config(config)
        return 0
    check_machine(config)
    from harness.pretraining.job import run_job

    begin = time.monotonic()
    name, size = str(config["encoder"]["name"]), config["encoder"]["size"]

    def report(line: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {line}", file=sys.stderr, flush=True)

    report(f"{name} ({size}) from {config['corpus']}")
    with warnings.catch_warnings():
        # deprecation warnings of libraries do not affect results
        for kind in (FutureWarning, DeprecationWarning):
            warnings.simplefilter("ignore", kind)
        record = run_job(config, report=report, command=shlex.join(["harness", "pretrain", *argv]))
    print(summary(record))
    print(next_command(record, name=name, output=config["output"]))
    return 0


def check_machine(config: Mapping[str, Any]) -> None:
    """Check that this machine has the devices and can write the folder of a pretraining run.

    Raises:
        HarnessError: a line for each problem.
    """
    from harness.processes.slots import hardware_problems
    from harness.sweeps.checks import check_writable, refuse

    trainer = config["trainer"]
    refuse(
        hardware_problems(
            accelerator=str(trainer["accelerator"]),
            devices=int(trainer["devices"]),
            precision=str(trainer["precision"]),
        )
    )
    check_writable(str(config["output"]), key="output")


def _config_dir(argv: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The value of ``--config-dir``, and the other arguments.

    Raises:
        HarnessError: it is not a folder.
    """
    rest, value = list(argv), None
    for n, argument in enumerate(argv):
        option, equals, text = argument.partition("=")
        if option in ("--config-dir", "-cd"):
            value = text if equals else "".join(argv[n + 1 : n + 2])
            del rest[n : n + (1 if equals else 2)]
            break
    if value is not None and not Path(value).expanduser().is_dir():
        raise HarnessError(f"--config-dir {value}: no such folder")
    return (None if value is None else Path(value).expanduser()), rest


def next_command(record: Mapping[str, Any], *, name: str, output: str) -> str:
    """The command that uses the encoder, with a learning rate at which a small model trains."""
    family = record.get("loads_as", name)
    small = family in PUBLISHED_RATES and record["encoder_parameters"] < SMALL_MODEL
    rate = f" optimizer.lr={SMALL_MODEL_LR}" if small else ""
    return f"harness encoder={family} encoder.path={shlex.quote(output)}{rate}"


def summary(record: Mapping[str, Any]) -> str:
    """The result in one or two lines."""
    seen, held_out = record["seen"], record["held_out"]
    training = (
        f"{record['family']} ({record['size']}): {record['parameters']:,} parameters, "
        f"{seen['tokens']:,} tokens ({seen['epochs']:.1f} epochs) in {seen['seconds']:.0f} s"
    )
    if held_out is None:
        return training
    if held_out["perplexity_per_word"] is None:
        return f"{training}\nheld out: {_other_measures(held_out)}"
    baseline = ""
    if held_out.get("unigram_nll") is not None:
        perplexity = math.exp(min(700.0, held_out["unigram_nll"] / held_out["words"]))
        baseline = f"; unigram baseline {perplexity:.1f}"
    unknown = f", {held_out['unknown_share']:.1%} unknown tokens" if held_out["unknown_share"] else ""
    return (
        f"{training}\nheld out: perplexity {held_out['perplexity_per_word']:.1f} per word "
        f"({held_out['nll'] / held_out['words']:.3f} nats{baseline}), "
        f"{held_out['perplexity_per_token']:.1f} per token{unknown}"
    )


def _other_measures(held_out: Mapping[str, Any]) -> str:
    """Measures of a model without perplexity per word, and why it has none."""
    names = [k for k in held_out if k.startswith("masked") or k == "pseudo_perplexity"]
    shown = ", ".join(f"{k} {held_out[k]:.3f}" for k in names if held_out[k] is not None)
    if held_out.get("unigram_nll") is not None:
        shown += f" (unigram baseline {held_out['unigram_nll'] / held_out['tokens']:.3f} nats per token)"
    return f"{shown or 'no measure'}; no perplexity per word: {held_out['undefined']}"


def _print_config(config: Mapping[str, object]) -> None:
    import yaml

    print(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True), end="")
