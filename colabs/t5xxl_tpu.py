# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # T5-XXL on a TPU
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/specjax/specjax/blob/main/colabs/t5xxl_tpu.ipynb)
#
# **Runtime:** TPU v4, v5e or v6e with eight cores (`v5litepod-8`, Colab's v5e-8) or one 80 GB GPU; on a CPU it rehearses with a tiny pair. **Shows:** T5-XXL with T5-small as its drafter, translating English to German: the row of Table 2 in [Leviathan et al. (2023)](https://arxiv.org/abs/2211.17192).

# %% [markdown]
# T5-XXL has 11 billion weights. In bfloat16 they take 22 GB, more than one TPU core has. So they are split over all cores. T5-small is small enough for every core to hold it whole.

# %% tags=["installation"]
try:
    import specjax
except ImportError:
    # %pip install --quiet "specjax[tpu] @ git+https://github.com/specjax/specjax"
    import specjax

# %%
# %matplotlib inline
import jax
import matplotlib.pyplot as plt
import numpy as np

import specjax

print(f"{jax.device_count()} x {jax.devices()[0].device_kind}")

# %% [markdown]
# ## Settings
#
# The paper fine-tuned its models on WMT14. The published ones are pre-trained only: their text means little, and their acceptance is another one. Name your own checkpoints for figures like the paper's.

# %% tags=["parameters"]
TARGET = "google/t5-v1_1-xxl"  # directory or hub id
DRAFTER = "google/t5-v1_1-small"
TASK = "wmt14_ende"
EXAMPLES = 100  # sentences to translate
REPEATS = 3  # timed decodes of each
MAX_NEW_TOKENS = 128
REHEARSAL_STEPS = 600  # of training the tiny pair, where there is no accelerator
REHEARSAL_LAYERS = 16
REHEARSAL_EXAMPLES = 10

# %% [markdown]
# ## The experiment
#
# As in the paper: seven drafted tokens, one sentence at a time, greedily and with samples at temperature 1.


# %%
def experiment(target, drafter, dtype, devices, examples=EXAMPLES, **data):
    """The row of Table 2 for a pair of models."""
    return specjax.decode_config(
        target=target,
        drafters={"small": drafter},
        dtype=dtype,
        mesh={"data": 1, "model": devices},
        max_prompt_tokens=256,
        max_new_tokens=MAX_NEW_TOKENS,
        bucket=32,
        examples=examples,
        repeats=REPEATS,
        strategies={
            "autoregressive": {"drafter": "none"},
            "greedy": {"drafter": "neural", "model": "small", "length": 7},
            "sampled": {"drafter": "none", "temperature": 1.0},
            "samples": {"drafter": "neural", "model": "small", "length": 7, "temperature": 1.0},
        },
        **data,
    )


# %% [markdown]
# ## Does it fit?
#
# `plan` says what each device must hold. It downloads nothing and needs no accelerator.

# %%
specjax.plan(experiment(TARGET, DRAFTER, "bfloat16", 8, task=TASK))

# %% [markdown]
# ## The run
#
# On a TPU or GPU this downloads both models, once. Without one a tiny pair takes their place, trained here on a small grammar. The cells are the same.

# %%
rehearsal = jax.default_backend() == "cpu"
if rehearsal:
    specjax.grammar_pair("runs/pair", steps=REHEARSAL_STEPS, layers=REHEARSAL_LAYERS)
    files = {"source_file": "runs/pair/test.en", "reference_file": "runs/pair/test.de"}
    config = experiment(
        "runs/pair/target",
        "runs/pair/drafter",
        dtype="float32",
        devices=1,
        examples=REHEARSAL_EXAMPLES,
        metric="bleu",
        **files,
    )
else:
    config = experiment(TARGET, DRAFTER, "bfloat16", jax.device_count(), task=TASK)

print("rehearsal with a tiny pair" if rehearsal else "the real pair")

# %%
results = specjax.run(config, "runs/t5xxl")

# %% [markdown]
# ## The row of Table 2
#
# The paper's figures come from one TPU v4 and fine-tuned models. Those of a rehearsal are of another pair on a CPU: they say nothing about T5-XXL.

# %%
paper = {"greedy": (3.4, 0.75), "samples": (2.6, 0.62)}  # speedup, acceptance

print(f"{'':10}{'speedup':>16}{'acceptance':>20}")
print(f"{'':10}{'paper':>8}{'here':>8}{'paper':>12}{'here':>8}")
for name, (speedup, acceptance) in paper.items():
    found = results["strategies"][name]
    print(
        f"{name:10}{speedup:8.1f}{found['speedup']:8.2f}"
        f"{acceptance:12.2f}{found['acceptance_rate']:8.2f}"
    )

# %%
here = "rehearsal, tiny pair" if rehearsal else "here"
places = np.arange(len(paper))

figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for index, (axes, field) in enumerate(zip(panels, ("speedup", "acceptance_rate"), strict=True)):
    axes.bar(places - 0.2, [row[index] for row in paper.values()], 0.4, label="paper, TPU v4")
    axes.bar(places + 0.2, [results["strategies"][n][field] for n in paper], 0.4, label=here)
    axes.set_xticks(places, ["greedy (T=0)", "samples (T=1)"])
    axes.set_xlabel("decoding")
panels[0].set_ylabel("speedup (times)")
panels[1].set_ylabel("acceptance rate")
panels[0].legend()
plt.show()

# %% [markdown]
# ## Next
#
# - `configs/t5xxl_ende.py` has the whole table: T5-base and T5-large too.
# - [docs/how_to/clusters.md](https://github.com/specjax/specjax/blob/main/docs/how_to/clusters.md): from an empty cloud project to this table, on a TPU VM or a whole slice.
# - [docs/lab_book/accelerators.md](https://github.com/specjax/specjax/blob/main/docs/lab_book/accelerators.md): what the TPU compiler says of this run, without a TPU.
