"""Operation counts: published sizes, XLA's own count of the models here, and identities."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.metrics.operations import transformer_shape
from specjax.models.causal import Causal, CausalConfig
from specjax.models.experts import Mixture
from specjax.models.gated_delta import GatedDelta
from specjax.models.latent_attention import Latent
from specjax.models.mamba2 import Mamba2
from specjax.models.positions import Rope
from specjax.models.rg_lru import RgLru
from specjax.models.shapes import get_parameter_shapes
from specjax.models.t5 import T5, T5Config
from specjax.theory.operations import TransformerShape, decoder_call, start

T5_SHAPE = TransformerShape(
    layers=3, d_model=256, d_ff=512, heads=4, d_head=64, vocab=1000, ff_matrices=3,
    encoder_layers=2,
)  # fmt: skip
CAUSAL_SHAPE = TransformerShape(
    layers=3, d_model=256, d_ff=512, heads=4, d_head=64, vocab=1000, ff_matrices=3, kv_heads=2
)
# XLA also counts norms, softmax, gates and biases: about 5 d of 2 d^2 operations per matrix.
ELEMENTWISE = 0.02


def xla_flops(call, *args) -> float:
    """FLOPs of the lowered program; nothing is compiled."""
    return jax.jit(call).lower(*args).cost_analysis()["flops"]


def abstract(model, prompt: int, capacity: int, tokens: int):
    """(start, its arguments, arguments of extend) of one row, as shapes."""
    params = get_parameter_shapes(model)
    text, size = (jax.ShapeDtypeStruct(s, jnp.int32) for s in ((1, prompt), (1,)))

    def begin(params, text, size):
        return model.start(params, text, size, capacity)[0]

    cache = jax.eval_shape(begin, params, text, size)
    fed = jax.ShapeDtypeStruct((1, tokens), jnp.int32)
    return begin, (params, text, size), (params, fed, cache)


def test_t5_programs_have_the_counted_operations():
    s = T5_SHAPE
    model = T5(
        T5Config(
            vocab_size=s.vocab, d_model=s.d_model, d_kv=s.d_head, d_ff=s.d_ff, num_heads=s.heads,
            num_layers=s.encoder_layers, num_decoder_layers=s.layers,
        )
    )  # fmt: skip
    begin, start_args, extend_args = abstract(model, prompt=48, capacity=64, tokens=1)
    assert xla_flops(begin, *start_args) == pytest.approx(start(s, 48).flops, rel=ELEMENTWISE)
    # The step attends to every slot: as much as the last one that fits.
    counted = decoder_call(s, 1, 63, 48).flops
    assert xla_flops(model.extend, *extend_args) == pytest.approx(counted, rel=ELEMENTWISE)


@pytest.mark.parametrize("mixture", [None, Mixture(experts=16, chosen=2, d_ff=192)])
def test_grouped_query_programs_have_the_counted_operations(mixture):
    """Of a mixture, the experts that the one token has."""
    s = CAUSAL_SHAPE
    model = Causal(
        CausalConfig(
            family="llama", vocab_size=s.vocab, d_model=s.d_model, d_ff=s.d_ff,
            num_layers=s.layers, num_heads=s.heads, num_kv_heads=s.kv_heads, d_head=s.d_head,
            max_positions=128, rope=Rope(s.d_head), mixtures=(mixture,) * s.layers,
        )
    )  # fmt: skip
    s = transformer_shape(model)
    _, _, extend_args = abstract(model, prompt=16, capacity=64, tokens=1)
    counted = decoder_call(s, 1, 63).flops
    assert xla_flops(model.extend, *extend_args) == pytest.approx(counted, rel=ELEMENTWISE)


@pytest.mark.parametrize("query_rank", [None, 48])
def test_latent_attention_has_the_counted_operations(query_rank):
    latent = Latent(rank=96, rotated=32, plain=48, value=40, query_rank=query_rank)
    model = Causal(
        CausalConfig(
            family="deepseek_v3", vocab_size=1000, d_model=256, d_ff=512, num_layers=2,
            num_heads=4, num_kv_heads=1, d_head=latent.key_width, max_positions=128,
            rope=Rope(32), latent=latent,
        )
    )  # fmt: skip
    shape = transformer_shape(model)
    assert shape.cached_width == 96 + 32
    _, _, extend_args = abstract(model, prompt=16, capacity=64, tokens=1)
    counted = decoder_call(shape, 1, 63).flops
    assert xla_flops(model.extend, *extend_args) == pytest.approx(counted, rel=ELEMENTWISE)
    cache = jax.eval_shape(
        lambda: (
            model.start(
                model.init(jax.random.key(0)), jnp.zeros((3, 16), jnp.int32), jnp.full(3, 16), 64
            )[0].data
        )
    )
    assert sum(leaf.size for leaf in jax.tree.leaves(cache)) == 3 * 2 * 64 * shape.cached_width


def test_layers_of_one_sublayer_have_the_counted_weights():
    mixture = Mixture(experts=4, chosen=2, d_ff=10, shared=7, latent=6, gated=False)
    config = CausalConfig(
        "nemotron_h", 100, d_model=16, d_ff=24, num_layers=4, num_heads=4, num_kv_heads=2, d_head=8,
        max_positions=128, rope=Rope(8), gated=False, mixers=(True, True, False, False),
        recurrences=(Mamba2(2, 4, 6, 5), None, None, None), d_ffs=(0, 0, 24, 0),
        mixtures=(None, None, None, mixture),
    )  # fmt: skip
    sizes = jax.tree_util.tree_flatten_with_path(get_parameter_shapes(Causal(config)))[0]
    names = [({key.key for key in path}, leaf.size) for path, leaf in sizes]
    kinds = {"kernel", "taps", "ups", "downs"}
    matrices = [size for path, size in names if path & kinds and "head" not in path]
    assert transformer_shape(Causal(config)).decoder_weights == sum(matrices)


@pytest.mark.parametrize(
    "kind",
    [GatedDelta(2, 4, 6, 5), Mamba2(2, 4, 6, 5), RgLru(1, 12, 1, 1, blocks=3)],
    ids=["delta", "mamba2", "rg_lru"],
)
def test_recurrent_layers_have_the_counted_weights_states_and_updates(kind):
    """A text of any length costs them the same; layers with attention are counted as ever."""
    config = CausalConfig(
        "llama", 100, d_model=16, d_ff=24, num_layers=3, num_heads=4, num_kv_heads=2, d_head=8,
        max_positions=128, rope=Rope(8), recurrences=(kind, kind, None),
    )  # fmt: skip
    model = Causal(config)
    shape = transformer_shape(model)
    sizes = jax.tree_util.tree_flatten_with_path(get_parameter_shapes(model))[0]
    names = [({key.key for key in path}, leaf.size) for path, leaf in sizes]
    matrices = [
        size for path, size in names if path & {"kernel", "taps", "weight"} and "head" not in path
    ]
    assert shape.decoder_weights == sum(matrices)
    cache = jax.eval_shape(
        lambda: model.start(
            model.init(jax.random.key(0)), jnp.zeros((1, 9), jnp.int32), jnp.full(1, 9), 64
        )[0]
    )
    own = cache.data["own"][0]
    one = shape.recurrent[0]
    assert sum(leaf.size for leaf in own.entries) == 64 * one.update
    assert own.state.size == one.state
    attending = dataclasses.replace(shape, layers=1, recurrences=())
    more, less = (
        decoder_call(s, 1, 40).memory - decoder_call(s, 1, 30).memory for s in (shape, attending)
    )
    assert more == less == 10 * shape.cached_width


def test_projected_embeddings_have_the_counted_operations():
    """Of OPT-350m: the output layer is one matrix more, which is narrower than states."""
    model = Causal(
        CausalConfig(
            "opt", 4000, d_model=256, d_ff=512, num_layers=1, num_heads=4, num_kv_heads=4,
            d_head=64, max_positions=128, gated=False, projected_width=64, tied=True,
        )
    )  # fmt: skip
    shape = transformer_shape(model)
    assert shape.output_weights == 256 * 64 + 64 * 4000
    _, _, extend_args = abstract(model, prompt=16, capacity=64, tokens=1)
    counted = decoder_call(shape, 1, 63).flops + 2 * 64 * 256  # and what embeds the token
    assert xla_flops(model.extend, *extend_args) == pytest.approx(counted, rel=ELEMENTWISE)


@pytest.mark.parametrize(
    "layers, d_model, d_ff, heads, ff_matrices, millions",
    [(24, 1024, 2816, 16, 3, 409), (8, 512, 1024, 6, 3, 25),
     (24, 1024, 4096, 16, 2, 402), (6, 512, 2048, 8, 2, 25)],
    ids=["mt5-large", "mt5-small", "t5-large", "t5-small"],
)  # fmt: skip
def test_decoder_weights_are_the_published_counts(
    layers, d_model, d_ff, heads, ff_matrices, millions
):
    shape = TransformerShape(
        layers, d_model, d_ff, heads, 64, 32_128, ff_matrices, encoder_layers=layers
    )
    assert shape.decoder_weights / 1e6 == pytest.approx(millions, abs=1)


@pytest.mark.parametrize("shape, source", [(T5_SHAPE, 30), (CAUSAL_SHAPE, 0)])
def test_one_wide_call_does_the_work_of_many_with_less_traffic(shape, source):
    wide = decoder_call(shape, 6, 10, source)
    single = decoder_call(shape, 1, 10 + np.arange(6), source)
    assert single.flops.shape == (6,)
    narrow = single.total()
    assert narrow.flops == wide.flops
    weights = shape.used_weights + shape.d_model * shape.vocab
    assert narrow.memory - wide.memory >= 5 * weights
    assert wide.intensity > 4 * narrow.intensity


def test_a_call_by_hand():
    shape = TransformerShape(
        layers=2, d_model=3, d_ff=5, heads=2, d_head=2, vocab=7, ff_matrices=2, encoder_layers=1
    )
    n, t, s, d, a = 2, 4, 6, 3, 4
    weights = 6 * d * a + 2 * d * 5
    call = decoder_call(shape, n, t, s)
    pairs = 5 + 6  # the first token sees four cached ones and itself
    assert call.flops == 2 * (2 * n * weights + 4 * a * pairs + 4 * a * n * s) + 2 * n * d * 7
    activations = 8 * d + 2 * 5 + 4 * a
    layer = weights + 2 * a * (t + n) + 2 * a * s + 2 * n * a + n * activations
    assert call.memory == 2 * layer + d * 7 + n * 7


def test_a_decoder_only_prompt_is_one_call_without_logits():
    s, size = CAUSAL_SHAPE, 9
    call = decoder_call(s, size - 1, 0)
    head = 2 * (size - 1) * s.d_model * s.vocab
    assert start(s, size).flops == call.flops - head
    assert start(s, size).memory == call.memory - (s.d_model + size - 1) * s.vocab
    assert start(s, 1).flops == start(s, 1).memory == 0


def test_calls_of_two_models_add_up():
    drafter = TransformerShape(1, 64, 128, 2, 32, 1000)
    both = decoder_call(drafter, 1, np.arange(5)).total() + decoder_call(CAUSAL_SHAPE, 6, 0)
    assert both.flops == decoder_call(drafter, 5, 0).flops + decoder_call(CAUSAL_SHAPE, 6, 0).flops


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: decoder_call(CAUSAL_SHAPE, 1, 0, 5), "source is 5; it must be 0 for a decoder"),
        (lambda: decoder_call(CAUSAL_SHAPE, 0, 0), "tokens is 0; it must be a whole number"),
        (lambda: start(CAUSAL_SHAPE, 0), "prompt is 0; it must be a whole number of at least 1"),
        (lambda: TransformerShape(1, 8, 0, 2, 4, 9), "d_ff is 0; it must be a whole number"),
        (lambda: TransformerShape(-1, 8, 8, 2, 4, 9), "layers is -1; it must be a whole number"),
        (
            lambda: TransformerShape(1, 8, 8, 4, 2, 9, kv_heads=3),
            "kv_heads is 3; it must divide the 4 heads",
        ),
    ],
)
def test_impossible_arguments_are_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value).startswith(sentence)
