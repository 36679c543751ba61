"""What training reads: encoded texts, mixtures of streams, and the model's own sequences."""

from __future__ import annotations

import itertools
from collections import Counter

import jax
import numpy as np
import pytest
from toy import MODEL, PAIRS, batches

from specjax.data.encoding import Encoder
from specjax.data.pipeline import Batches, Mixture, Pairs, RaggedRows, fit_widths, pad_batch
from specjax.hf.tokenizer import train_tokenizer
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.training.on_policy import OwnSequences

CAUSAL = Causal(
    CausalConfig(
        family="llama", vocab_size=11, d_model=8, d_ff=16, num_layers=1, num_heads=2,
        num_kv_heads=1, d_head=4, max_positions=64, rope=Rope(4), eos=(1,),
    )
)  # fmt: skip


def test_ragged_rows_come_back():
    rows = [[1, 2, 3], [], [4]]
    made = RaggedRows(rows)
    assert [row.tolist() for row in made] == rows
    assert made[-1].tolist() == [4]
    with pytest.raises(IndexError):
        made[3]
    with pytest.raises(ValueError, match="3 prompts and 2 outputs"):
        Pairs(made, RaggedRows(rows[:2]))


def test_an_epoch_is_shuffled_anew():
    made = batches()
    epochs = [
        [made[e * made.per_epoch + i]["prompt"].tolist() for i in range(made.per_epoch)]
        for e in range(2)
    ]
    assert epochs[0] != epochs[1]


def test_batches_hold_rows_of_similar_length():
    rng = np.random.default_rng(0)
    rows = [([2] * int(n), [3, 1]) for n in rng.integers(1, 60, 400)]
    made = Batches(rows, batch_size=20, bucket=8, seed=0, start_token=0, pad=0)
    padding = [batch["prompt"].shape[1] - batch["prompt_length"].mean() for batch in
               itertools.islice(made.since(0), made.per_epoch)]  # fmt: skip
    assert np.mean(padding) < 8


def test_a_mixture_draws_by_weight_and_by_the_step():
    other = [([9, 9, 1], [9, 1])] * 32
    second = Batches(other, batch_size=16, bucket=4, seed=0, start_token=0, pad=0)
    made = Mixture({"a": batches(), "b": second}, {"a": 3.0, "b": 1.0}, 400, seed=0)
    count = Counter(made.kinds)
    assert count["b"] / 400 == pytest.approx(0.25, abs=0.07)  # three standard deviations
    for step in (0, 57, 399):
        is_b = bool((made[step]["prompt"][:, 0] == 9).all())
        assert is_b == (made.kinds[step] == "b")
    later = [b["prompt"].tolist() for b in itertools.islice(made.since(5), 4)]
    assert later == [made[step]["prompt"].tolist() for step in range(5, 9)]
    # The streams run on without gaps.
    mine = [step for step in range(400) if made.kinds[step] == "a"]
    np.testing.assert_array_equal(made[mine[7]]["prompt"], batches()[7]["prompt"])


@pytest.mark.parametrize("start_token", [0, None])
def test_the_shares_of_all_processes_are_the_batch(start_token):
    """As wide as the longest row, whoever has it."""
    rng = np.random.default_rng(0)
    rows = [([2] * int(n), [3, 1]) for n in rng.integers(1, 60, 100)]
    made = Batches(rows, batch_size=8, bucket=4, seed=0, start_token=start_token, pad=0)
    mixed = Mixture({"a": made, "b": batches()}, {"a": 1.0, "b": 1.0}, 20, seed=0)
    shares = np.array([0, 1, 4, 5]), np.array([2, 3, 6, 7])
    for source, steps in ((made, range(made.per_epoch + 1)), (mixed, range(5, 20))):
        parts = [list(itertools.islice(source.since(steps[0], s), len(steps))) for s in shares]
        for step, *found in zip(steps, *parts, strict=True):
            for name, whole in source[step].items():
                for share, part in zip(shares, found, strict=True):
                    np.testing.assert_array_equal(part[name], whole[share])


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["a man rides a red bike", "ein Mann"] * 4, 60)


def encoder(tokenizer, causal: bool, prompt: int = 99, output: int = 99) -> Encoder:
    return Encoder(tokenizer, causal, 1, prompt, output)


def test_encoder_decoder_rows_end_with_eos(tokenizer):
    made = encoder(tokenizer, False)
    (prompt,) = made.prompts(["a man rides"])
    (output,) = made.outputs(["a man rides"], ["ein Mann"])
    assert prompt.tolist() == tokenizer("a man rides").input_ids
    assert output.tolist() == tokenizer("ein Mann").input_ids and output[-1] == 1
    short = encoder(tokenizer, False, 3, 2)
    assert short.prompts(["a man rides"])[0].tolist() == [*prompt[:2].tolist(), 1]
    assert short.outputs(["a"], ["ein Mann"])[0].tolist() == output[:2].tolist()


def test_a_continuation_is_what_follows_the_prompt_in_the_whole_text():
    class Words:
        """One id per word; no EOS."""

        def __call__(self, texts, add_special_tokens=True):
            single = isinstance(texts, str)
            rows = [[ord(c) for c in text] for text in ([texts] if single else texts)]

            class Found:
                input_ids = rows[0] if single else rows

            return Found

    made = encoder(Words(), True, 3)
    assert made.outputs(["ab", "a "], ["c", "d"])[0].tolist() == [ord(" "), ord("c"), 1]
    assert made.outputs(["ab", "a "], ["c", "d"])[1].tolist() == [ord("d"), 1]
    assert made.prompts(["abcd"])[0].tolist() == [ord(c) for c in "bcd"]


@pytest.mark.slow
@pytest.mark.parametrize("model", [MODEL, CAUSAL], ids=["encoder-decoder", "decoder-only"])
def test_own_sequences_are_what_the_model_samples(model):
    params = model.init(jax.random.key(0))
    batch = pad_batch(PAIRS[:6], 4, model.info.start_token, model.info.pad)
    own = OwnSequences(model, 5, seed=1, bucket=4)
    made = own(params, 3, batch)
    causal = model.info.start_token is None
    for row in range(6):
        n, begin = int(made["length"][row]), int(made["mask"][row].argmax())
        assert begin == (int(batch["prompt_length"][row]) - 1 if causal else 0)
        assert made["mask"][row].tolist() == [begin <= i < n for i in range(len(made["mask"][row]))]
        assert 1 <= n - begin <= 5
        # Labels are the inputs one step later, and end with EOS or at the limit.
        assert made["labels"][row, : n - 1].tolist() == made["inputs"][row, 1:n].tolist()
        assert made["labels"][row, n - 1] in model.info.eos or n - begin == 5
        if causal:
            assert made["inputs"][row, : begin + 1].tolist() == PAIRS[row][0]
    again = own(params, 3, batch)
    jax.tree.map(np.testing.assert_array_equal, made, again)
    assert made["labels"].tolist() != own(params, 4, batch)["labels"].tolist()


@pytest.mark.slow
def test_own_sequences_follow_the_law_of_the_model():
    """First tokens of many rows against the model's own probabilities (chi-square)."""
    from scipy.stats import chisquare

    params = MODEL.init(jax.random.key(0))
    batch = pad_batch([PAIRS[0]] * 500, 4, 0, 0)
    own = OwnSequences(MODEL, 1, seed=0, bucket=4)
    first = np.concatenate([own(params, step, batch)["labels"][:, 0] for step in range(8)])
    distribution = np.asarray(jax.nn.softmax(MODEL.teach(params, batch)[0][0, 0]), np.float64)
    counts = np.bincount(first, minlength=11)
    assert chisquare(counts, distribution / distribution.sum() * len(first)).pvalue > 1e-3


def test_a_whole_row_can_be_learnt():
    batch = pad_batch([([5, 6], [7, 1])], 4, None, 0, learn_prompt=True)
    assert batch["mask"].tolist() == [[True, True, True, False]]


@pytest.mark.parametrize(
    ("prompts", "outputs", "start_token", "states", "widths"),
    [
        ([5, 13], [4, 12], 0, 0, (16, 16)),  # no half of 16 holds 12
        ([100, 7], [5, 9], 0, 0, (104, 13)),
        ([100, 7], [1, 1], 0, 0, (104, 13)),  # not below a bucket
        ([3], [30], 0, 0, (32, 32)),
        ([10, 4], [6, 3], None, 0, (16, 16)),
        ([90, 130], [5, 9], 0, 400, (150, 16)),
        ([399], [5], 0, 400, (400, 8)),
    ],
)
def test_widths_hold_both_sides_and_are_few(prompts, outputs, start_token, states, widths):
    lengths = np.stack([prompts, outputs], axis=1)
    assert fit_widths(lengths, 8, start_token, states) == widths


def test_short_outputs_of_long_prompts_are_not_padded_to_these():
    rng = np.random.default_rng(0)
    pairs = [([4] * rng.integers(100, 300), [5] * rng.integers(2, 30)) for _ in range(200)]
    batches = Batches(pairs, batch_size=8, bucket=32, seed=0, start_token=0, pad=0)
    made = [batches[step] for step in range(batches.per_epoch)]
    shapes = {(batch["prompt"].shape[1], batch["inputs"].shape[1]) for batch in made}
    assert all(output < 64 for _, output in shapes) and len(shapes) <= 12
    assert sum(int(batch["mask"].sum()) for batch in made) == sum(len(one) for _, one in pairs)
