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
# # Speculative decoding in five minutes
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/specjax/specjax/blob/main/colabs/quickstart.ipynb)
#
# **Runtime:** CPU is enough; a GPU or TPU works too. **Shows:** a small model drafting for a large one, who wrote which token, and how much faster that is.

# %% [markdown]
# A large model writes one token per call. That is slow.
#
# A small model, the *drafter*, can guess the next few tokens cheaply. The large model, the *target*, then reads all of them in one call and keeps those that it agrees with. The text is the one that the target would have written alone. It only comes sooner.

# %% tags=["installation"]
try:
    import specjax
except ImportError:
    # %pip install --quiet "specjax @ git+https://github.com/specjax/specjax"
    import specjax

# %%
# %matplotlib inline
import time

import matplotlib.pyplot as plt

import specjax
from specjax.data import grammar

# %% [markdown]
# ## Settings
#
# Without names the notebook trains its own tiny pair, which needs no download. Training takes less than three minutes on two CPU cores. For a pair from the Hugging Face hub give two names, such as `google-t5/t5-large` and `google-t5/t5-small`, and the prefix `translate English to German: `.

# %% tags=["parameters"]
TARGET = ""  # a directory or hub id; empty: a pair is trained here
DRAFTER = ""
PREFIX = ""  # put before every sentence
STEPS = 600  # of training
LAYERS = 16  # of the target's decoder
LENGTHS = (2, 4, 8, 12)  # drafted tokens to compare
SENTENCES = 20  # to measure with

# %% [markdown]
# ## A pair
#
# Target and drafter must share a vocabulary. The drafter should be several times smaller.

# %%
if TARGET:
    target, drafter = specjax.load(TARGET), specjax.load(DRAFTER)
else:
    target, drafter = specjax.grammar_pair("runs/pair", steps=STEPS, layers=LAYERS)

print(f"target:  {target.model.info.depth} decoder layers")
print(f"drafter: {drafter.model.info.depth} decoder layers")

# %% [markdown]
# ## A sentence
#
# The drafter proposes four tokens at a time. Each token has the color of the model that wrote it. Struck-through tokens were drafted, and the target did not agree.
#
# It is the first sentence of those that the models have not seen. A target as small as this one makes mistakes. Drafting neither mends them nor adds any.


# %%
def generator_of(strategy):
    """The pair with a strategy."""
    return specjax.Generator(target, {"drafter": drafter}, strategy, max_new_tokens=48, bucket=48)


sentences = [PREFIX + pair.source for pair in grammar.pairs("test", SENTENCES, most_words=16)]
generator = generator_of(specjax.speculative(length=4))
generator(sentences[:1])

# %% [markdown]
# ## The same text
#
# The target alone writes the same tokens. This holds for every sentence. (On a GPU or TPU rounding may decide between two tokens that are all but equally likely.)

# %%
alone = generator_of(specjax.autoregressive())
expected = alone(sentences, batch_size=1)
result = generator(sentences, batch_size=1)

same = sum(a == b for a, b in zip(result.tokens, expected.tokens, strict=True))
print(f"the same tokens: {same} of {len(sentences)} sentences")

# %% [markdown]
# ## Fewer calls
#
# The target is called less often, because most drafted tokens stand.

# %%
calls = expected.statistics.calls["target"], result.statistics.calls["target"]
print(f"calls of the target, alone:        {calls[0]}")
print(f"calls of the target, with drafter: {calls[1]}")
print(f"drafted tokens that were accepted: {result.statistics.acceptance_rate:.0%}")

# %% [markdown]
# ## Speed
#
# Sentences are decoded one after another, as in a chat, and by every draft length in turn. A draft length of 0 is the target alone. The first pass compiles and is not counted. Of the next five the fastest counts.

# %%
lengths = (0, *LENGTHS)
generators = {
    length: generator_of(specjax.speculative(length=length)) if length else alone
    for length in lengths
}
statistics = {
    length: made(sentences, batch_size=1).statistics for length, made in generators.items()
}
seconds = {length: [float("inf")] * len(sentences) for length in lengths}
for _ in range(5):
    for index, sentence in enumerate(sentences):
        for length, made in generators.items():
            start = time.perf_counter()
            made([sentence])
            took = time.perf_counter() - start
            seconds[length][index] = min(seconds[length][index], took)

# %%
speedups = {length: sum(seconds[0]) / sum(seconds[length]) for length in lengths}
per_call = {length: statistics[length].tokens_per_target_call for length in lengths}
for length in lengths:
    milliseconds = 1000 * sum(seconds[length]) / statistics[length].tokens
    print(f"drafts of {length}: {milliseconds:.2f} ms per token, speedup {speedups[length]:.2f}")

# %% [markdown]
# Longer drafts give more tokens per call of the target. They also cost more, because the drafter runs more often, and what the target rejects was for nothing. At some length that outweighs the gain.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.plot(lengths, per_call.values(), marker="o")
left.set_ylabel("tokens per call of the target")
right.plot(lengths, speedups.values(), marker="o", color="tab:green")
right.axhline(1, color="grey", linestyle="--", label="target alone")
right.set_ylabel("speedup (times)")
right.legend()
for axes in (left, right):
    axes.set_xlabel("draft length (tokens)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
plt.show()

# %% [markdown]
# ## Samples
#
# At a temperature above 0 the target draws its tokens. Speculative sampling then keeps the target's distribution exactly. Another seed draws another text.

# %%
sampled = generator_of(specjax.speculative(length=4, temperature=1.0))
for seed in range(3):
    print(sampled(sentences[:1], seed=seed).texts[0])

# %% [markdown]
# ## A stream
#
# `stream` yields each piece of text as soon as it is final.

# %%
for piece in generator.stream(sentences[1]):
    print(f"[{piece}]", end="")

# %% [markdown]
# ## Next
#
# - [methods](methods.ipynb): four methods side by side.
# - [train_drafter](train_drafter.ipynb): a drafter that is accepted more often.
# - [new_drafter](new_drafter.ipynb): a drafter of your own in one cell.
# - [t5xxl_tpu](t5xxl_tpu.ipynb): T5-XXL on a TPU.
