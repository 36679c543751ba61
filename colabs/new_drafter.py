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
# # A drafter of your own, in one cell
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/specjax/specjax/blob/main/colabs/new_drafter.ipynb)
#
# **Runtime:** CPU, one minute. **Shows:** how a new drafter is written, and how to test that it never changes what the target says.

# %% [markdown]
# A drafter may guess in any way it likes. The target reads the guess and keeps what fits. So a bad drafter costs time, but it must never change the text.
#
# This notebook writes a drafter and tests that.

# %% tags=["installation"]
try:
    import specjax
except ImportError:
    # %pip install --quiet "specjax @ git+https://github.com/specjax/specjax"
    import specjax

# %%
# %matplotlib inline
import collections
import dataclasses
import itertools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import chisquare

import specjax
from specjax.contracts import Categorical, Draft, Drafter, Spec, fields, get_pending_tokens
from specjax.contracts.registry import DRAFTERS
from specjax.models.t5 import T5, T5Config

# %% tags=["parameters"]
TEXTS = 20_000  # samples of the test
VOCABULARY = 6  # tokens
LENGTH = 3  # tokens of a text

# %% [markdown]
# ## The drafter
#
# It proposes the last token again and again. `spec` says how many tokens it drafts and who writes them. `propose` gives the tokens of a batch, as an array of one row per text. Registered under a name, it works from Python and in configs.


# %%
@DRAFTERS.register("last_token", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class LastToken(Drafter):
    """The last token again and again."""

    length: int = fields.integer(help="drafted tokens")

    @property
    def spec(self):
        return Spec(width=self.length, writers=("last_token",))

    def propose(self, env, caches, memory, context, keys):
        tokens = jnp.tile(get_pending_tokens(context)[:, None], (1, self.length))
        return Draft.chain(tokens), caches, memory, {}


# %% [markdown]
# ## A target
#
# A tiny T5 with random weights will do. It has so few tokens that all its texts can be listed. Token 1 ends a text.

# %%
model = T5(
    T5Config(
        vocab_size=VOCABULARY,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_heads=2,
        num_layers=1,
        num_decoder_layers=2,
        tied=True,
        scale_outputs=True,
    )
)
params = jax.tree.map(lambda weights: 2 * weights, model.init(jax.random.key(3)))
target = specjax.LoadedModel(model, params)


def generator_of(strategy, tokens):
    return specjax.Generator(target, strategy=strategy, max_new_tokens=tokens)


# %% [markdown]
# ## Greedy: the same tokens
#
# Without sampling the text must be the target's own, token for token.

# %%
prompts = [list(prompt) for prompt in itertools.product(range(2, VOCABULARY), repeat=3)]

alone = generator_of(specjax.autoregressive(), 16)(prompts)
drafted = generator_of(specjax.strategy(drafter="last_token", length=3), 16)(prompts)

same = sum(a == b for a, b in zip(drafted.tokens, alone.tokens, strict=True))
print(f"the same tokens: {same} of {len(prompts)} texts")
print(f"accepted drafts: {drafted.statistics.acceptance_rate:.0%}")

# %% [markdown]
# ## Sampling: the same distribution
#
# With sampling, texts differ from seed to seed. What must stay the same is how likely each text is.
#
# First, the truth: the probability of every text under the target.

# %%
PROMPT = [3, 2, 4]


def law_of_the_target():
    """The probability of every text of up to LENGTH tokens."""
    texts = np.array(list(itertools.product(range(VOCABULARY), repeat=LENGTH)))
    rows = len(texts)
    batch = {
        "prompt": np.tile(PROMPT, (rows, 1)),
        "prompt_length": np.full(rows, len(PROMPT)),
        "inputs": np.insert(texts[:, :-1], 0, model.info.start_token, axis=1),
        "length": np.full(rows, LENGTH),
    }
    (logits,) = model.teach(params, batch)
    chances = np.asarray(jax.nn.softmax(logits, axis=-1), np.float64)
    distribution = {}
    for text, chance in zip(texts.tolist(), chances, strict=True):
        end = text.index(1) + 1 if 1 in text else LENGTH
        distribution[tuple(text[:end])] = float(np.prod(chance[np.arange(end), text[:end]]))
    return distribution


exact_distribution = law_of_the_target()
print(
    f"{len(exact_distribution)} texts, whose probabilities add up to {sum(exact_distribution.values()):.6f}"
)

# %% [markdown]
# Then a lot of samples with the drafter, and how often each text came.


# %%
def counts_with(drafter):
    """How often each text comes when this drafter proposes."""
    strategy = specjax.strategy(drafter=drafter, length=3, temperature=1.0)
    tokens = generator_of(strategy, LENGTH)([PROMPT] * TEXTS).tokens
    return collections.Counter(map(tuple, tokens))


counts = counts_with("last_token")
print("the commonest:", counts.most_common(3))

# %% [markdown]
# The chi-square test compares both. Its p-value says how often a correct drafter would look at least this odd. A tiny p-value means: wrong. Texts that are expected fewer than eight times are counted together.


# %%
def p_value(counts):
    """Of the counts under the target's law."""
    common = [text for text in exact_distribution if exact_distribution[text] * TEXTS >= 8]
    observed = [counts[text] for text in common]
    expected = [exact_distribution[text] * TEXTS for text in common]
    observed.append(TEXTS - sum(observed))
    expected.append(TEXTS - sum(expected))
    return chisquare(observed, expected).pvalue


right = p_value(counts)
print(f"p-value: {right:.3f}, so {'nothing is wrong' if right > 1e-3 else 'something is wrong'}")

# %% [markdown]
# ## A drafter that lies
#
# Would the test notice a mistake? This drafter proposes the same tokens. But it claims to have drawn them from all tokens alike. The target then accepts them too easily.


# %%
@DRAFTERS.register("liar", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class Liar(LastToken):
    """The last token, said to be drawn uniformly."""

    def propose(self, env, caches, memory, context, keys):
        draft, *rest = super().propose(env, caches, memory, context, keys)
        uniform = jnp.full((*draft.tokens.shape, VOCABULARY), 1 / VOCABULARY)
        return draft.replace(distribution=Categorical(uniform)), *rest


wrong = counts_with("liar")
print(
    f"p-value: {p_value(wrong):.3g}, so {'it is caught' if p_value(wrong) < 1e-6 else 'it is missed'}"
)

# %%
likeliest = sorted(exact_distribution, key=exact_distribution.get, reverse=True)[:10]
places = np.arange(len(likeliest))

figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
axes.bar(places - 0.2, [counts[text] for text in likeliest], 0.4, label="last_token")
axes.bar(places + 0.2, [wrong[text] for text in likeliest], 0.4, label="liar", color="tab:orange")
expected = [exact_distribution[text] * TEXTS for text in likeliest]
axes.plot(places, expected, "_", markersize=28, color="black", label="expected")
axes.set_xticks(places, [" ".join(map(str, text)) for text in likeliest])
axes.set_xlabel("text (token ids)")
axes.set_ylabel("samples")
axes.legend()
plt.show()

# %% [markdown]
# The honest drafter meets the black marks. The liar does not.
#
# ## Next
#
# - [docs/tutorials/own_drafter.md](https://github.com/specjax/specjax/blob/main/docs/tutorials/own_drafter.md#5-go-on) says where to look for more: drafters that call models, remember, or draw at random.
# - In the repository, `tests/contract` runs these tests for every registered drafter.
# - [train_drafter](train_drafter.ipynb): a drafter that learns.
