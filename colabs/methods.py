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
# # Four methods side by side
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/specjax/specjax/blob/main/colabs/methods.ipynb)
#
# **Runtime:** CPU is enough; a GPU or TPU works too. **Shows:** speculative decoding, Big Little Decoder, cascades and a choice among drafters on one task, as quality against speed.

# %% [markdown]
# All methods let a small model write for a large one. They differ in what the large one checks, and when.
#
# Some keep its text exactly. Others trade a little quality for speed. A plot of quality against speed shows which is worth it.

# %% tags=["installation"]
try:
    import specjax
except ImportError:
    # %pip install --quiet "specjax @ git+https://github.com/specjax/specjax"
    import specjax

# %%
# %matplotlib inline
import specjax
from specjax.reporting.plots.jobs import quality_against_speed

# %% [markdown]
# ## Settings
#
# The task is to translate English into German. The pair of models is the one of the [quickstart](quickstart.ipynb) notebook. Training it takes less than three minutes on two CPU cores.

# %% tags=["parameters"]
STEPS = 600  # of training
LAYERS = 16  # of the target's decoder
EXAMPLES = 20  # sentences to translate
REPEATS = 3  # timed decodes of each

# %%
target, drafter = specjax.grammar_pair("runs/pair", steps=STEPS, layers=LAYERS)
print(f"target:  {target.model.info.depth} decoder layers")
print(f"drafter: {drafter.model.info.depth} decoder layers")

# %% [markdown]
# A strategy is a handful of fields under a name. The first one is the target alone.

# %%
strategies = {"autoregressive": {"drafter": "none"}}

# %% [markdown]
# ## Speculative decoding
#
# The drafter writes a few tokens. The target reads them in one call and keeps the first ones that it agrees with. With a `temperature` this is speculative sampling. Without one, as here, the text is the target's own. ([Leviathan et al. 2023](https://arxiv.org/abs/2211.17192))

# %%
for length in (3, 6):
    strategies[f"speculative_{length}"] = {
        "drafter": "neural",
        "model": "drafter",
        "length": length,
    }

# %% [markdown]
# ## Big Little Decoder
#
# The small model writes until it is unsure (`fallback`). Then the large one reads what was written. It only takes back what it finds very unlikely (`rollback`). A higher `rollback` is faster, and the text differs more from the target's. ([Kim et al. 2023](https://arxiv.org/abs/2302.07863))

# %%
for rollback in (1.0, 2.0, 5.0):
    strategies[f"bild_{rollback:g}"] = {
        "drafter": "bild",
        "fallback": 0.5,
        "rollback": rollback,
    }

# %% [markdown]
# ## Cascades
#
# The drafter can have a drafter of its own. Here it is Max-Gram, which copies and counts and needs no model. The matrix says how many tokens each adds: the drafter reviews two tokens of Max-Gram at a time until it has four, then Max-Gram adds two more. ([Chen et al. 2024](https://arxiv.org/abs/2312.11462))

# %%
strategies["max_gram"] = {"drafter": "max_gram", "length": 5}
strategies["cascade"] = {
    "drafter": "cascade",
    "drafters": ("drafter", "max_gram"),
    "matrix": ((4, 2), (0, 2)),
}

# %% [markdown]
# ## A choice
#
# Which drafter is best may depend on the text. `selected` chooses one for each sentence. In the mode `online` it learns from the speeds that it sees, sentence after sentence.

# %%
strategies["selected"] = {
    "drafter": "selected",
    "arms": ("autoregressive", "speculative_3", "max_gram"),
    "mode": "online",
}

# %% [markdown]
# ## One run
#
# All strategies decode the same sentences in turns, so that a busy machine is unfair to none. `bleu` says how good the translations are, `speedup` is against the target alone.

# %%
config = specjax.decode_config(
    name="the built-in English-German grammar",
    target="runs/pair/target",
    drafter="runs/pair/drafter",
    source_file="runs/pair/test.en",
    reference_file="runs/pair/test.de",
    ngram_file="runs/pair/train.de",
    metric="bleu",
    examples=EXAMPLES,
    repeats=REPEATS,
    max_new_tokens=48,
    max_prompt_tokens=64,
    bucket=48,
    strategies=strategies,
)
results = specjax.run(config, "runs/methods")

# %% [markdown]
# ## Quality against speed
#
# Up and to the right is better. Nothing beats the points on the line, the *Pareto front*.
#
# A target this small is hardly better than its drafter. So a method that trusts the drafter more need not score lower here. [The lab book](https://github.com/specjax/specjax/blob/main/docs/lab_book/bild.md) has a larger pair.

# %%
found = results["strategies"]
quality_against_speed(
    speed=[entry["speedup"] for entry in found.values()],
    quality=[entry["quality"]["bleu"] for entry in found.values()],
    series=[name.rstrip("_0123456789") for name in found],
    labels=list(found),
    axis_labels=("speedup over the target alone (times)", "BLEU"),
)

# %% [markdown]
# Some methods promise the target's own text. They keep the promise. (On a GPU or TPU rounding may decide between two tokens that are all but equally likely.)

# %%
for name, entry in found.items():
    if entry["lossless"]:
        print(f"{name:16}{entry['identical_to_target']:.0%} of the texts are the target's own")

# %% [markdown]
# ## Next
#
# - `runs/methods/report.html` has all figures of this run, and more plots.
# - [docs/reference/strategies.md](https://github.com/specjax/specjax/blob/main/docs/reference/strategies.md) lists the fields of every strategy.
# - [train_drafter](train_drafter.ipynb): a drafter that is accepted more often.
