"""What the warm server imports once, so that the children forked from it need not.

Nothing here may touch CUDA: a process that did cannot fork into children that use it.
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
    # what the first use of these would import in every child anew
    "pandas",
    "pyarrow.pandas_compat",  # at the first table that is written
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
        # a module that fails here fails again in the child, where its cell's log shows why
        with contextlib.suppress(Exception):
            importlib.import_module(_name)

    # the names that transformers rewrites on loading: a thousand patterns compiled at first use, and one more
    # for each tensor of a checkpoint, which Python remembers. No model is loaded here (these have no memory):
    # tensor work would start threads, and what a fork leaves of those hangs
    with contextlib.suppress(Exception):
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping

        get_checkpoint_conversion_mapping("bert")
    with contextlib.suppress(Exception):
        import torch
        from transformers import BertConfig, BertModel, GPT2Config, GPT2Model
        from transformers.core_model_loading import WeightRenaming

        with torch.device("meta"):
            for model in (GPT2Model(GPT2Config()), BertModel(BertConfig())):
                for name in model.state_dict():
                    WeightRenaming(name, name)
        del model

    # what every record says of the code, the same for all cells of the server
    with contextlib.suppress(Exception):
        from harness.core import provenance

        provenance.versions()
        provenance.git_state()

# what is alive now never dies: keeping the collector away from it keeps the pages shared with the children
gc.collect()
gc.freeze()
