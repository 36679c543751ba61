"""Published drafters' configurations, their sizes shrunk, and random weights in their layouts.

`published_drafters.json` has one of them a line: its `name`, where its fields are `from`, and
whether that quotes the file (`source` "published") or is what writes such files ("exporter").
`tensors` names the layout of its weights, `without` those that a file lacks, and `refused` the
reason why it is not read.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save_file

from specjax.models.base import Params
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope

Entry = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]
Tensors = dict[str, np.ndarray]

FILE = Path(__file__).with_name("published_drafters.json")
ENTRIES: list[Entry] = json.loads(FILE.read_text("utf-8"))
READ = [entry for entry in ENTRIES if "refused" not in entry]
REFUSED = [entry for entry in ENTRIES if "refused" in entry]

TARGET = Causal(
    CausalConfig(
        "llama", 96, d_model=32, d_ff=48, num_layers=9, num_heads=2, num_kv_heads=1, d_head=8,
        max_positions=64, rope=Rope(8), eos=(1,),
    )
)  # fmt: skip
"""As deep and wide as the targets that they are made for, so far shrunk."""


@functools.cache
def target_params() -> Params:
    return jax.tree.map(lambda x: x * 1.3, TARGET.init(jax.random.key(3)))


def write_checkpoint(
    folder: Path, entry: Entry, seed: int = 0, tensors: Tensors | None = None
) -> Path:
    """The checkpoint of an entry, with random weights unless others are given."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(entry["config"]), "utf-8")
    file = "medusa_lm_head" if entry["tensors"] == "medusa" else "model"
    tensors = draw_tensors(entry, seed) if tensors is None else tensors
    save_file(tensors, folder / f"{file}.safetensors", metadata={"format": "pt"})
    return folder


def draw_tensors(entry: Entry, seed: int = 0) -> Tensors:
    """Random weights under the names of an entry's layout."""
    layout, config = entry["tensors"], entry["config"]
    random = np.random.default_rng(seed)
    tensors = random_tensors(SHAPES[layout](config), random)
    drafted, size = _vocabularies(config)
    for name in entry.get("without", ()):
        del tensors[name]
    if (layout in EAGLE3 or "speculators_model_type" in config) and drafted < size:
        ids = np.sort(random.permutation(size)[:drafted])
        tensors["d2t"] = (ids - np.arange(drafted)).astype(np.int64)
        tensors["t2d"] = np.isin(np.arange(size), ids)
    return {f"{EAGLE3.get(layout, '')}{name}": tensor for name, tensor in tensors.items()}


def random_tensors(shapes: Shapes, random: np.random.Generator | int) -> Tensors:
    """Random tensors of these names and shapes."""
    generator = np.random.default_rng(random)
    return {name: _random(shape, generator) for name, shape in shapes.items()}


def layer_words(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("transformer_layer_config", config)


def _random(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if len(shape) == 1:
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    return random.normal(0, 1.5 * shape[-1] ** -0.5, shape).astype(np.float32)


def _vocabularies(config: Mapping[str, Any]) -> tuple[int, int]:
    size = layer_words(config).get("vocab_size", 0)
    return config.get("draft_vocab_size") or size, size


def _layer(layer: Mapping[str, Any], width: int) -> Shapes:
    """A Llama's layer whose attention reads so many numbers."""
    hidden, inner = layer["hidden_size"], layer["intermediate_size"]
    heads = layer["num_attention_heads"]
    head = layer.get("head_dim") or hidden // heads
    queries, keys = heads * head, (layer.get("num_key_value_heads") or heads) * head
    return {
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "post_attention_layernorm": (hidden,),
    }


def _norms(layer: Mapping[str, Any]) -> Shapes:
    """Norms of queries and keys."""
    head = layer.get("head_dim") or layer["hidden_size"] // layer["num_attention_heads"]
    return {f"self_attn.{w}_norm": (head,) for w in "qk"}


def name_weights(tensors: Mapping[str, tuple[int, ...]], block: str = "") -> Shapes:
    return {f"{block}{name}.weight": shape for name, shape in tensors.items()}


def _eagle3(config: Mapping[str, Any], block: str) -> Shapes:
    layer = layer_words(config)
    hidden, read = layer["hidden_size"], 3 * layer["hidden_size"]
    drafted, size = _vocabularies(config)
    tensors = _layer(layer, 2 * hidden) | {"input_layernorm": (hidden,), "hidden_norm": (hidden,)}
    if layer is not config and layer["model_type"] == "qwen3":
        tensors |= _norms(layer)
    others: Shapes = {"fc": (hidden, read), "norm": (hidden,), "lm_head": (drafted, hidden)}
    if "LlamaForCausalLM" in config["architectures"]:
        others["embed_tokens"] = size, hidden
    if config.get("norm_before_fc"):
        others["input_norm"] = (read,)
    if config.get("fc_norm"):
        others |= {f"fc_norm.{number}": (hidden,) for number in range(3)}
    return name_weights(others) | name_weights(tensors, f"{block}.")


def _midlayer(config: Mapping[str, Any]) -> Shapes:
    return _eagle3(config, "midlayer")


def _first_layer(config: Mapping[str, Any]) -> Shapes:
    return _eagle3(config, "layers.0")


def _two_layers(config: Mapping[str, Any]) -> Shapes:
    second = _layer(config, config["hidden_size"]) | {"input_layernorm": (config["hidden_size"],)}
    return _first_layer(config) | name_weights(second, "layers.1.")


def _p_eagle(config: Mapping[str, Any]) -> Shapes:
    layer = layer_words(config)
    shapes = _first_layer(config) | {"mask_hidden": (1, 1, 3 * layer["hidden_size"])}
    plain = _layer(layer, layer["hidden_size"]) | {"input_layernorm": (layer["hidden_size"],)}
    if layer.get("model_type") == "qwen3":
        plain |= _norms(layer)
    for number in range(1, layer["num_hidden_layers"]):
        shapes |= name_weights(plain, f"layers.{number}.")
    return shapes


def _eagle1(config: Mapping[str, Any]) -> Shapes:
    """Of EAGLE-1 and 2: a layer without a norm of its input, and what fuses state and token."""
    hidden = config["hidden_size"]
    others = {"fc": (hidden, 2 * hidden), "embed_tokens": (config["vocab_size"], hidden)}
    return name_weights(others) | name_weights(_layer(config, hidden), "layers.0.")


def block_words(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a block drafter, whatever object of its configuration they are in."""
    words = {**layer_words(config), **config, **config.get("dflash_config", {})}
    ids = words.get("aux_hidden_state_layer_ids") or range(words["num_hidden_layers"])
    return {"target_layer_ids": ids, **words}


def _dflash(config: Mapping[str, Any]) -> Shapes:
    words = block_words(config)
    hidden, count = words["hidden_size"], words["num_hidden_layers"]
    fused = hidden, len(words["target_layer_ids"]) * hidden
    tensors = _layer(words, hidden) | _norms(words) | {"input_layernorm": (hidden,)}
    shapes = name_weights({"fc": fused, "hidden_norm": (hidden,), "norm": (hidden,)})
    if "speculators_model_type" in config or "Qwen3DSparkModel" in config["architectures"]:
        drafted, size = _vocabularies(config)
        shapes |= name_weights({"embed_tokens": (size, hidden), "lm_head": (drafted, hidden)})
    for number in range(count):
        shapes |= name_weights(tensors, f"layers.{number}.")
    return shapes


def _dspark(config: Mapping[str, Any]) -> Shapes:
    words, (drafted, size) = block_words(config), _vocabularies(config)
    rank, hidden = words["markov_rank"], words["hidden_size"]
    tables = {"markov_head.markov_w1": (size, rank), "markov_head.markov_w2": (drafted, rank)}
    shapes = _dflash(config) | name_weights(tables)
    if words.get("enable_confidence_head"):
        head = {"confidence_head.proj": (1, hidden + rank)}
        shapes |= name_weights(head) | {"confidence_head.proj.bias": (1,)}
    return shapes


def _domino(config: Mapping[str, Any]) -> Shapes:
    inside, hidden = config["dflash_config"], config["hidden_size"]
    rank, state = inside["emb_dim"], inside["gru_hidden_dim"]
    layers = {"embed_proj.0": (rank, hidden + state), "embed_proj.2": (config["vocab_size"], rank)}
    return (
        _dflash(config)
        | name_weights(layers)
        | {
            "prefix_gru.weight_ih_l0": (3 * state, hidden),
            "prefix_gru.weight_hh_l0": (3 * state, state),
        }
    )


def _dflash2(config: Mapping[str, Any]) -> Shapes:
    words = block_words(config)
    rank, taps, hidden = (
        words[name] for name in ("selector_rank", "conv_kernel_size", "hidden_size")
    )
    shapes = _dflash(config) | {
        "candidate_selector.hidden_projection.weight": (rank, hidden),
        "candidate_selector.predecessor_codebook": (words["vocab_size"], rank),
        "candidate_selector.successor_codebook": (words["vocab_size"], rank),
    }
    count = 2 * taps * hidden // words["conv_group_size"]
    for number in range(words["num_hidden_layers"]):
        for part in ("attention_conv", "mlp_conv"):
            shapes[f"layers.{number}.{part}.base_kernel"] = 2, taps, hidden
            shapes[f"layers.{number}.{part}.kernel_projection.weight"] = count, hidden
    return shapes


def _medusa(config: Mapping[str, Any]) -> Shapes:
    return dict(_heads(config, hidden=32, size=96))


def _heads(config: Mapping[str, Any], hidden: int, size: int) -> Iterator[tuple[str, Any]]:
    for number in range(config["medusa_num_heads"]):
        for block in range(config["medusa_num_layers"]):
            yield f"{number}.{block}.linear.weight", (hidden, hidden)
            yield f"{number}.{block}.linear.bias", (hidden,)
        yield f"{number}.{config['medusa_num_layers']}.weight", (size, hidden)


SHAPES = {
    "midlayer": _midlayer,
    "layers.0": _first_layer,
    "model.layers.0": _first_layer,
    "two layers": _two_layers,
    "p_eagle": _p_eagle,
    "eagle1": _eagle1,
    "dflash": _dflash,
    "dspark": _dspark,
    "domino": _domino,
    "dflash2": _dflash2,
    "medusa": _medusa,
    "none": lambda config: {"lm_head.weight": (4, 4)},
}

BLOCKS = "dflash", "dspark", "domino", "dflash2"
"""Layouts of blocks."""

EAGLE3 = {
    "midlayer": "",
    "layers.0": "",
    "two layers": "",
    "p_eagle": "",
    "model.layers.0": "model.",
}
"""Layouts of EAGLE-3, and what all names begin with."""
