"""Corrections of blocks, read from the published layouts, compared with PyTorch's own layers."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drafter_files import ENTRIES, draw_tensors, write_checkpoint

torch = pytest.importorskip("torch")

import specjax  # noqa: E402
from specjax.models.convolution import Convolution, DynamicConvolution  # noqa: E402
from specjax.models.layers import MASKED  # noqa: E402

pytestmark = pytest.mark.slow
PLACES = 4
TOKENS = [5, 40, 7, 62]
NAMES = {
    "dspark": "SpecForge Qwen3-4B DSpark",
    "domino": "SpecForge Qwen3-8B Domino",
    "dflash2": "z-lab/Qwen3.8-27B-DFlash2",
}


def entry_of(layout: str):
    return next(entry for entry in ENTRIES if entry["name"] == NAMES[layout])


def of_specjax(layout: str, folder: Path, given: dict[str, np.ndarray], table: np.ndarray):
    """Corrected logits [K, V] and confidences of places in their order."""
    drafter = specjax.load(write_checkpoint(folder, entry_of(layout)))
    model, params = drafter.model, drafter.params | {"embedding": jnp.asarray(table)}
    params = {"ids": jnp.arange(len(table), dtype=jnp.int32), **params}
    cache, _ = model.start(params, jnp.zeros((1, 2), jnp.int32), jnp.array([2]), 8)
    state = jnp.zeros((1, 1, model.config.correction.state_size))
    logits, confidences = [], []
    for k, token in enumerate(TOKENS):
        u, h = (jnp.asarray(given[name][k])[None, None] for name in ("logits", "hidden"))
        before, place = jnp.array([[token]]), jnp.array([[k]])
        made, state, confidence = model.correct(params, cache, u, h, before, state, place)
        logits.append(made[0, 0])
        confidences.append(None if confidence is None else float(confidence[0, 0]))
    return np.array(logits), confidences


def of_torch(layout: str, given: dict[str, np.ndarray], table: np.ndarray):
    """The same by `nn.Embedding`, `nn.Linear` and `nn.GRU` on the tensors of the file."""
    f, config = torch.nn.functional, entry_of(layout)["config"]
    stored = {name: torch.tensor(x) for name, x in draw_tensors(entry_of(layout)).items()}
    u, h = (torch.tensor(given[name]) for name in ("logits", "hidden"))
    tokens = torch.tensor(TOKENS)
    if layout == "dspark":
        read = f.embedding(tokens, stored["markov_head.markov_w1.weight"])
        logits = u + f.linear(read, stored["markov_head.markov_w2.weight"])
        weight, bias = (stored[f"confidence_head.proj.{name}"] for name in ("weight", "bias"))
        seen = torch.cat([h, read], -1)
        return logits.numpy(), torch.sigmoid(f.linear(seen, weight, bias))[:, 0].tolist()
    inside = config["dflash_config"]
    if layout == "domino":
        gru = torch.nn.GRU(h.shape[-1], inside["gru_hidden_dim"], bias=False, batch_first=True)
        gru.load_state_dict(
            {n: stored[f"prefix_gru.{n}"] for n in ("weight_ih_l0", "weight_hh_l0")}
        )
        states = gru(torch.tensor(table)[tokens][None])[0][0]
        low = f.silu(f.linear(torch.cat([h, states], -1), stored["embed_proj.0.weight"]))
        logits = u + f.linear(low, stored["embed_proj.2.weight"])
        first = inside["pure_draft_prefix_len"]
        logits[:first] = u[:first]
        return logits.detach().numpy(), [None] * PLACES
    best = u.topk(inside["selector_top_k"], -1).indices
    before = stored["candidate_selector.predecessor_codebook"][tokens]
    query = before * f.linear(h, stored["candidate_selector.hidden_projection.weight"])
    after = stored["candidate_selector.successor_codebook"][best]
    logits = torch.full_like(u, MASKED)
    logits.scatter_(1, best, u.gather(1, best) + (query[:, None] * after).sum(-1))
    return logits.numpy(), [None] * PLACES


@pytest.mark.parametrize("layout", NAMES)
def test_a_published_correction_is_what_pytorch_computes(layout, tmp_path: Path) -> None:
    config = entry_of(layout)["config"]
    rng = np.random.default_rng(0)
    size, width = config["vocab_size"], config["hidden_size"]
    given = {
        "logits": np.float32(rng.normal(size=(PLACES, size))),
        "hidden": np.float32(rng.normal(size=(PLACES, width))),
    }
    table = np.float32(rng.normal(size=(size, width)))
    logits, confidences = of_specjax(layout, tmp_path / "it", given, table)
    expected, sure = of_torch(layout, given, table)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    assert np.abs(expected - given["logits"]).max() > 0.1  # it changes something
    assert confidences == pytest.approx(sure, abs=1e-5)


def test_a_convolution_is_a_sum_over_the_places_before_in_the_block() -> None:
    """As a depthwise `conv1d` of two blocks, padded on the left, where nothing is dynamic."""
    width, size = 8, 4
    module = DynamicConvolution(Convolution(2, 4), width, jnp.float32)
    x = np.random.default_rng(1).normal(size=(1, 2 * size, width)).astype(np.float32)
    given = jnp.asarray(x)

    def run(module, x):
        return module(x, module.kernels(x), 0, size), module(x, module.kernels(x), 1, size)

    params = module.init(jax.random.key(0), given, method=run)["params"]
    for same in module.apply({"params": params}, given, method=run):
        np.testing.assert_array_equal(same, x)  # fresh kernels change nothing
    base = np.random.default_rng(2).normal(size=(2, 2, width)).astype(np.float32)
    params = params | {"base": jnp.asarray(base)}
    sides = module.apply({"params": params}, given, method=run)
    blocks = torch.tensor(x).reshape(2, size, width).transpose(1, 2)
    for side, made in enumerate(sides):
        kernel = torch.tensor(base[side][::-1].copy()).T[:, None]  # the last tap is the place's own
        padded = torch.nn.functional.pad(blocks, (1, 0))
        expected = torch.nn.functional.conv1d(padded, kernel, groups=width)
        expected = expected.transpose(1, 2).reshape(1, 2 * size, width)
        np.testing.assert_allclose(made, expected, atol=1e-5)
    weights = np.random.default_rng(3).normal(size=(width, 2 * 2 * 2)).astype(np.float32)
    params = params | {"coefficients": {"kernel": jnp.asarray(weights)}}
    made, _ = module.apply({"params": params}, given, method=run)
    own = (x @ weights).reshape(2, size, 2, 2, 2)  # [block, place, side, tap, group]
    for block in range(2):
        for place in range(size):
            for channel in range(width):
                taps = own[block, place, 0, :, channel // 4] + base[0, :, channel]
                seen = x[0, block * size + place, channel] * taps[0]
                if place:
                    seen += x[0, block * size + place - 1, channel] * taps[1]
                np.testing.assert_allclose(made[0, block * size + place, channel], seen, atol=1e-4)
