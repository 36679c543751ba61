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
# # A drafter that is accepted more often
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/specjax/specjax/blob/main/colabs/train_drafter.ipynb)
#
# **Runtime:** CPU is enough; a GPU or TPU is faster. **Shows:** a drafter made of the target's first layer, trained on your own text by alignment and by distillation, and how often it is accepted before and after.

# %% [markdown]
# Speculative decoding is fast when the drafter guesses what the target says. So teach it just that.
#
# Nobody needs to label anything. The target writes the training data itself, from your inputs.

# %% tags=["installation"]
try:
    import specjax
except ImportError:
    # %pip install --quiet "specjax @ git+https://github.com/specjax/specjax"
    import specjax

# %%
# %matplotlib inline
from pathlib import Path

import matplotlib.pyplot as plt

import specjax
from specjax.data import grammar

# %% [markdown]
# ## Settings
#
# The target is the one of the [quickstart](quickstart.ipynb) notebook. Training it takes less than three minutes on two CPU cores. For another target name its directory or hub id, and a file of texts for it.

# %% tags=["parameters"]
TARGET = ""  # a directory or hub id; empty: a target is trained here
TEXT = ""  # a file with one input per line; empty: English sentences
STEPS = 600  # of the target's training
LAYERS = 16  # of the target's decoder
INPUTS = 800  # lines to learn from
HELD_OUT = 64  # lines to measure with
ALIGN_STEPS = 120
DISTIL_STEPS = 80

# %%
if not TARGET:
    specjax.grammar_pair("runs/pair", steps=STEPS, layers=LAYERS)
    TARGET = "runs/pair/target"

# %% [markdown]
# ## Your text
#
# Only inputs are needed, one per line. They should look like what will be decoded later. Some are held out, to measure with.

# %%
if TEXT:
    lines = Path(TEXT).read_text("utf-8").splitlines()
else:
    lines = [pair.source for pair in grammar.pairs("validation", INPUTS + HELD_OUT, most_words=16)]

folder = Path("runs/text")
folder.mkdir(parents=True, exist_ok=True)
(folder / "held_out.txt").write_text("\n".join(lines[:HELD_OUT]), "utf-8")
(folder / "train.txt").write_text("\n".join(lines[HELD_OUT : HELD_OUT + INPUTS]), "utf-8")
print(lines[0])

# %% [markdown]
# ## Alignment
#
# The drafter starts as the target's encoder and its first decoder layer. Any small model with the same vocabulary would do.
#
# The target decodes the inputs. Then the drafter learns to say the same. Every so many steps its acceptance is measured on the held-out lines: at temperature 0, and for samples at temperature 1. (A run also prints a loss on references. Your text has none, so that number says nothing here.)

# %%
common = {
    "target": TARGET,
    "train": {"source_file": "runs/text/train.txt"},
    "validation": {"source_file": "runs/text/held_out.txt", "examples": HELD_OUT},
    "sequences": {"data": 0.0, "target": 1.0},
    "batch_size": 32,
    "bucket": 24,
    "max_prompt_tokens": 64,
    "max_output_tokens": 48,
}


def schedule(steps):
    """The optimizer of a run, and four evaluations."""
    return {
        "optimizer": {"steps": steps, "learning_rate": 1e-3, "warmup": steps // 10},
        "evaluation": {"every": max(steps // 4, 1), "keep": "acceptance_1", "decode": False},
    }


aligned = specjax.run(
    specjax.train_config(
        name="align",
        model={"checkpoint": TARGET, "decoder_layers": (0,)},
        **schedule(ALIGN_STEPS),
        **common,
    ),
    "runs/align",
)

# %% [markdown]
# ## Distillation
#
# Alignment shows the drafter one token at each place. Distillation shows it the target's whole distribution. The total variation between both is exactly one minus the acceptance of speculative sampling, so it is what we minimize.

# %%
distilled = specjax.run(
    specjax.train_config(
        name="distil",
        model={"checkpoint": "runs/align/model"},
        objective={"name": "distillation", "divergence": "total_variation"},
        **schedule(DISTIL_STEPS),
        **common,
    ),
    "runs/distil",
)

# %% [markdown]
# ## Before and after

# %%
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
looks = {"acceptance_0": ("greedy", "o"), "acceptance_1": ("samples at temperature 1", "s")}
for name, (label, marker) in looks.items():
    steps, rates = [], []
    for first, run in ((0, aligned), (ALIGN_STEPS, distilled)):
        steps += [first + row["step"] for row in run["evaluations"]]
        rates += [row[name] for row in run["evaluations"]]
    axes.plot(steps, rates, marker=marker, label=label)
axes.axvline(ALIGN_STEPS, color="grey", linestyle="--", label="distillation begins")
axes.set_xlabel("training step")
axes.set_ylabel("acceptance rate, held-out lines")
axes.set_ylim(0, 1)
axes.grid(alpha=0.3)
axes.legend()
plt.show()

# %% [markdown]
# ## Use it
#
# The trained drafter is a checkpoint in Hugging Face's format. It loads like any other.

# %%
target = specjax.load(TARGET)
drafter = specjax.load("runs/distil/model")
generator = specjax.Generator(
    target, {"drafter": drafter}, specjax.speculative(length=4), max_new_tokens=48, bucket=48
)
result = generator(lines[:1])
print(f"tokens per call of the target: {result.statistics.tokens_per_target_call:.2f}")
result

# %% [markdown]
# ## Next
#
# - [docs/how_to/training.md](https://github.com/specjax/specjax/blob/main/docs/how_to/training.md) has all settings, and what they gained on real data.
# - A run that was interrupted goes on where it stopped: call the same cell again.
# - [methods](methods.ipynb): what else a drafter can be used for.
