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
# # A chat with SmolLM2, without a second model
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/specjax/specjax/blob/main/colabs/smollm2.ipynb)
#
# **Runtime:** CPU is enough; a GPU or TPU works too. **Shows:** a published chat model that answers sooner because tokens are copied from the chat, and whether the answers stay the same.

# %% [markdown]
# In a chat, much is written twice: "show the whole function again", "make this paragraph shorter". Such tokens need no second model to guess them. They can be copied from what was written before. The chat model, the *target*, checks the copied tokens in one call and keeps those that it would have written itself.
#
# So no drafter is trained and no memory is needed for one. Where nothing repeats, nothing is gained.

# %% tags=["installation"]
try:
    import specjax
except ImportError:
    # %pip install --quiet "specjax @ git+https://github.com/specjax/specjax"
    import specjax

# %%
# %matplotlib inline
import os
import time

import matplotlib.pyplot as plt

import specjax

# %% [markdown]
# ## Settings
#
# The model is downloaded from the Hugging Face hub: 270 MB. For a copy on disk, name its folder here or in the environment variable `SPECJAX_SMOLLM2`.

# %% tags=["parameters"]
MODEL = os.environ.get("SPECJAX_SMOLLM2", "HuggingFaceTB/SmolLM2-135M-Instruct")
EAGLE = ""  # a folder with an EAGLE-3 layer that was trained for this model; empty: without one
LENGTHS = (3, 6)  # drafted tokens to compare
NEW_TOKENS = 160  # at most, in each answer
REPEATS = 2  # timed decodes of each answer

# %% [markdown]
# ## The model

# %%
target = specjax.load(MODEL)
print(
    f"{target.model.info.depth} layers, {target.model.info.vocab_size:,} tokens in the vocabulary"
)

# %% [markdown]
# ## A chat
#
# Each message is answered by the target alone, one token per call. `chat_prompts` writes the messages in the model's own chat template.
#
# A model this small does not always do what it is asked for. Drafts neither mend that nor make it worse.


# %%
def generator_of(strategy, drafters=None):
    """The target with a strategy."""
    return specjax.Generator(
        target,
        drafters,
        strategy,
        max_new_tokens=NEW_TOKENS,
        max_prompt_tokens=1024,
        bucket=256,  # prompts are padded to multiples of it: each width is compiled once
    )


messages = [
    "Write a Python function that tells whether a number is prime. Give only the code.",
    "Rename the argument to value and show the whole function again.",
    "Add a docstring to the function and show the whole function again.",
]
alone = generator_of(specjax.autoregressive())
chat, prompts, expected = [], [], []
for message in messages:
    chat.append({"role": "user", "content": message})
    prompts += specjax.chat_prompts(target, [chat])
    answer = alone(prompts[-1:])
    expected += answer.tokens
    chat.append({"role": "assistant", "content": answer.texts[0]})

for message in chat:
    print(f"[{message['role']}]\n{message['content']}\n")

# %% [markdown]
# ## The same chat with drafts
#
# Two strategies copy from the chat:
#
# - `prompt_lookup` finds the last place where the last few tokens occurred, and copies what followed there.
# - `suffix` looks at all such places, counts how they went on, and drafts less where they disagree.
#
# The length is how many tokens are drafted at most.

# %%
strategies = {
    f"{name}, {length}": specjax.strategy(drafter=name, length=length)
    for name in ("prompt_lookup", "suffix")
    for length in LENGTHS
}
generators = {"alone": alone}
generators |= {name: generator_of(strategy) for name, strategy in strategies.items()}
if EAGLE:
    layer = {"eagle": specjax.load(EAGLE)}
    drafted = {
        f"eagle, {length}": specjax.strategy(drafter="eagle", model="eagle", length=length)
        for length in LENGTHS
    }
    generators |= {name: generator_of(strategy, layer) for name, strategy in drafted.items()}

# %% [markdown]
# The first pass compiles. Then all strategies answer each message in turns, so that a busy machine is unfair to none. Of the repeats the fastest counts. The time includes reading the chat so far.

# %%
results = {name: [made([prompt]) for prompt in prompts] for name, made in generators.items()}
seconds = {name: [float("inf")] * len(prompts) for name in generators}
for _ in range(REPEATS):
    for index, prompt in enumerate(prompts):
        for name, made in generators.items():
            start = time.perf_counter()
            made([prompt])
            took = time.perf_counter() - start
            seconds[name][index] = min(seconds[name][index], took)

# %% [markdown]
# ## The same tokens
#
# The target decides on every token, so the answers are the same. (On a GPU or TPU rounding may decide between two tokens that are all but equally likely.)

# %%
for name, answers in results.items():
    same = sum(one.tokens == [tokens] for one, tokens in zip(answers, expected, strict=True))
    print(f"{name:18} the same tokens in {same} of {len(prompts)} answers")

# %% [markdown]
# ## Fewer calls, less time

# %%
tokens = sum(map(len, expected))
per_call = {}
for name, answers in results.items():
    calls = sum(one.statistics.reviews for one in answers)
    per_call[name] = sum(one.statistics.tokens for one in answers) / calls
speedups = {name: sum(seconds["alone"]) / sum(each) for name, each in seconds.items()}
print(f"{'':18} tokens per call   ms per token   speedup")
for name, each in seconds.items():
    milliseconds = 1000 * sum(each) / tokens
    print(f"{name:18} {per_call[name]:15.2f} {milliseconds:14.1f} {speedups[name]:9.2f}")

# %% [markdown]
# Answer by answer the gain differs: the first one repeats nothing, the later ones show the function again. A call on more tokens costs more than a call on one, so the speedup is less than the tokens per call.

# %%
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
width = 0.8 / len(generators)
for place, (name, each) in enumerate(seconds.items()):
    gains = [one / own for one, own in zip(seconds["alone"], each, strict=True)]
    left = [index + place * width for index in range(len(prompts))]
    axes.bar(left, gains, width, align="edge", label=name)
axes.axhline(1, color="grey", linestyle="--")
axes.set_xticks(
    [index + 0.4 for index in range(len(prompts))],
    [f"answer {index + 1}" for index in range(len(prompts))],
)
axes.set_ylabel("speedup over the target alone (times)")
axes.legend(loc="upper left", fontsize="small")
plt.show()

# %% [markdown]
# ## Who wrote what
#
# The last answer: tokens that were copied and accepted have another color than those of the target. Struck-through ones were copied, and the target did not agree.

# %%
results[f"suffix, {LENGTHS[-1]}"][-1]

# %% [markdown]
# ## Next
#
# - Texts that do not repeat themselves need a drafter that was trained: an EAGLE-3 layer for this model is what [configs/training/smollm2.py](https://github.com/specjax/specjax/blob/main/configs/training/smollm2.py) trains. Name its folder in `EAGLE` above.
# - [docs/methods/suffix.md](https://github.com/specjax/specjax/blob/main/docs/methods/suffix.md): copies from a corpus of earlier chats.
# - [quickstart](quickstart.ipynb): a small model that drafts for a large one.
# - [methods](methods.ipynb): four methods side by side.
