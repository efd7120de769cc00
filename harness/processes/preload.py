"""Modules that the fork server imports once, so that the workers forked from it start quickly.

Nothing here may initialise CUDA: a process that has cannot fork workers that use it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import warnings

MODULES = (
    "torch",
    "pytorch_lightning",
    "transformers",
    "harness.processes.worker",
    "harness.training.run",
    # imported lazily by libraries at first use, which would be repeated in every worker
    "pandas",
    "pyarrow.pandas_compat",  # at the first table written
    "pyarrow.parquet",
    "safetensors.torch",
    "torch._dynamo",
    "torch.profiler._cupti_monitor",
    "torch.optim",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert",
    "transformers.models.gpt2.modeling_gpt2",
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for _name in MODULES:
        # a module that fails here fails again in the worker, whose log shows the reason
        with contextlib.suppress(Exception):
            importlib.import_module(_name)

    # transformers compiles about a thousand regular expressions at first use to rename checkpoint weights,
    # and one more per tensor; re caches them. The models are on the meta device: real tensor operations would
    # start threads, and a fork of a multi-threaded process can deadlock
    with contextlib.suppress(Exception):
        from transformers import conversion_mapping

        conversion_mapping.get_checkpoint_conversion_mapping("bert")  # type: ignore[no-untyped-call]
    with contextlib.suppress(Exception):
        import torch
        from transformers import BertConfig, BertModel, GPT2Config, GPT2Model
        from transformers.core_model_loading import WeightRenaming

        with torch.device("meta"):
            for model in (GPT2Model(GPT2Config()), BertModel(BertConfig())):
                for name in model.state_dict():
                    WeightRenaming(name, name)
        del model

    # cached: the same for the records of all cells of this server
    with contextlib.suppress(Exception):
        from harness.core import provenance

        provenance.versions()
        provenance.git_state()

# hidden from the garbage collector, the objects alive now keep their pages shared with the workers
gc.collect()
gc.freeze()
