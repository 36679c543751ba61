"""Writes golden block drafters in published layouts, and what PyTorch computes over three rounds.

    python tests/golden/make_blocks.py

Needs torch; the tests that read the files do not. `Drafter` computes every round anew from the
whole text, without a cache. Each directory of blocks/ holds a tiny random drafter and
`expected.safetensors`: a target's embedding and output matrix, a text and the target's states at
its tokens, the lengths of every row at every round (the last token is pending), other states for
tokens that were rejected, the drafted tokens, and the corrected logits of all places.
"""

from __future__ import annotations

import math
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

FOLDER = Path(__file__).parent
DFLASH = runpy.run_path(str(FOLDER / "make_dflash.py"))
Block, drawn, published, save = (DFLASH[name] for name in ("Drafter", "drawn", "published", "save"))
SEED, FIRST = 11, 7
"""Seed, and the length of the text in the first round."""

ACCEPTED = ((0, 2), (2, 4), (4, 0))
"""Accepted tokens of both rows in the first, second and third round: none, some, all of four."""

READ = {"mask_token_id": 93, "target_layer_ids": [1, 3, 4]}
WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}
MARKOV = {"projector_type": "dspark", "markov_rank": 6, "markov_head_type": "gated"}
GRU = {"projector_type": "domino", "emb_dim": 6, "gru_hidden_dim": 5, "pure_draft_prefix_len": 1}
SELECTOR = {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 6, "selector_top_k": 8}

KINDS: dict[str, dict[str, Any]] = {
    "windows": published(**WINDOWS, use_sliding_window=True),
    "jetspec": published(dflash_config=READ | {"causal_head": True}),
    "dspark": published(
        architectures=["DSparkDraftModel"], block_size=4, dflash_config=READ | MARKOV
    ),
    "domino": published(architectures=["DominoDraftModel"], dflash_config=READ | GRU),
    "dflash2": published(
        architectures=["DFlash2DraftModel"],
        is_causal=False,
        layer_types=["sliding_attention"] * 2,
        sliding_window=6,
        use_sliding_window=True,
        dflash_config=READ | SELECTOR,
    ),
}


class Drafter(Block):
    """The published forward passes on a checkpoint's own tensors and a target's two tables."""

    @property
    def words(self) -> Mapping[str, Any]:
        return self.config["dflash_config"]

    def unseen(self, begin: int, size: int) -> torch.Tensor:
        """Where the places of a block behind `begin` tokens do not look, [N, begin + N]."""
        sliding = self.config["layer_types"][self.number] == "sliding_attention"
        causal = self.words.get("causal_head", self.config.get("is_causal", sliding))
        ahead = torch.arange(begin + size)[None] - (begin + torch.arange(size))[:, None]
        later = ahead > (0 if causal else size)
        return later | (-ahead >= self.config["sliding_window"]) if sliding else later

    def kernels(self, x: torch.Tensor, part: str) -> torch.Tensor | None:
        """Kernels [B, N, 2, taps, D] of a sublayer, from its normed input."""
        name = f"{self.block}.{part}"
        base = self.tensors.get(f"{name}.base_kernel")
        if base is None:
            return None
        own = self.linear(x, f"{name}.kernel_projection").unflatten(-1, (2, len(base[0]), -1))
        return base + own.repeat_interleave(self.words["conv_group_size"], dim=-1)

    def convolved(self, x: torch.Tensor, kernels: torch.Tensor | None, side: int) -> torch.Tensor:
        if kernels is None:
            return x
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        return kernels[:, :, side, 0] * x + kernels[:, :, side, 1] * before

    def after_layer(self, x: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        begin, size = read.shape[1], x.shape[1]
        h = self.norm(x, f"{self.block}.input_layernorm")
        kernels = self.kernels(h, "attention_conv")
        h = self.convolved(h, kernels, 0)
        q = self.heads(h, "q", True, begin)
        k = torch.cat([self.heads(read, "k", True), self.heads(h, "k", True, begin)], dim=2)
        v = torch.cat([self.heads(read, "v", False), self.heads(h, "v", False)], dim=2)
        x = x + self.convolved(self.attended(q, k, v, self.unseen(begin, size)), kernels, 1)
        h = self.norm(x, f"{self.block}.post_attention_layernorm")
        kernels = self.kernels(h, "mlp_conv")
        h = self.convolved(h, kernels, 0)
        gate = torch.nn.functional.silu(self.linear(h, f"{self.block}.mlp.gate_proj"))
        h = self.linear(
            gate * self.linear(h, f"{self.block}.mlp.up_proj"), f"{self.block}.mlp.down_proj"
        )
        return x + self.convolved(h, kernels, 1)

    @torch.no_grad()
    def round(self, pending: int, features: np.ndarray, drafted: np.ndarray) -> np.ndarray:
        """Corrected logits [K, V] of one row, whose target has states [T - 1, F * E].

        `drafted` [K] are the tokens whose predecessors the corrections read.
        """
        places = self.config["block_size"] - ("markov_rank" not in self.words)
        block = torch.full((1, self.config["block_size"]), self.words["mask_token_id"])
        block[:, 0] = pending
        x = self.embedding[block]
        read = self.norm(self.linear(torch.tensor(features)[None], "fc"), "hidden_norm")
        for number in range(self.config["num_hidden_layers"]):
            self.number, self.block = number, f"layers.{number}"
            x = self.after_layer(x, read)
        hidden = self.norm(x, "norm")[0, -places:]
        before = torch.tensor([pending, *drafted[:-1]])
        return self.corrected(hidden @ self.head.T, hidden, before).numpy()

    def corrected(self, u: torch.Tensor, h: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Logits [K, V] after the correction by the tokens before each place."""
        if "markov_rank" in self.words:
            e = self.tensors["markov_head.markov_w1.weight"][before]
            gate = torch.sigmoid(self.linear(torch.cat([h, e], -1), "markov_head.gate_proj"))
            return u + self.linear(gate * e, "markov_head.markov_w2")
        if "gru_hidden_dim" in self.words:
            low = self.linear(torch.cat([h, self.recurrent_states(before)], -1), "embed_proj.0")
            change = self.linear(torch.nn.functional.silu(low), "embed_proj.2")
            first = self.words["pure_draft_prefix_len"]
            return torch.cat([u[:first], u[first:] + change[first:]])
        if "selector_rank" in self.words:
            query = self.linear(h, "candidate_selector.hidden_projection")
            query = query * self.tensors["candidate_selector.predecessor_codebook"][before]
            scores = u + query @ self.tensors["candidate_selector.successor_codebook"].T
            least = u.topk(self.words["selector_top_k"], -1).values[:, -1:]
            return scores.masked_fill(u < least, -math.inf)
        return u

    def recurrent_states(self, tokens: torch.Tensor) -> torch.Tensor:
        """States [K, H] of the recurrence after each token; r, z and n are its gates."""
        wi, wh = (self.tensors[f"prefix_gru.weight_{kind}_l0"] for kind in ("ih", "hh"))
        state, states = torch.zeros(wh.shape[1]), []
        for embedded in self.embedding[tokens]:
            (ri, zi, ni), (rh, zh, nh) = (wi @ embedded).chunk(3), (wh @ state).chunk(3)
            r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
            state = (1 - z) * torch.tanh(ni + r * nh) + z * state
            states.append(state)
        return torch.stack(states)


def weights(config: Mapping[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """Random tensors under the names of a layout: the block's and its correction's."""
    words, width, size = config["dflash_config"], config["hidden_size"], config["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {}
    if rank := words.get("markov_rank"):
        for name in ("markov_w1", "markov_w2"):
            shapes[f"markov_head.{name}.weight"] = size, rank
        shapes["markov_head.gate_proj.weight"] = rank, width + rank
        shapes["markov_head.gate_proj.bias"] = (rank,)
    if state := words.get("gru_hidden_dim"):
        shapes["prefix_gru.weight_ih_l0"] = 3 * state, width
        shapes["prefix_gru.weight_hh_l0"] = 3 * state, state
        shapes["embed_proj.0.weight"] = words["emb_dim"], width + state
        shapes["embed_proj.2.weight"] = size, words["emb_dim"]
    if rank := words.get("selector_rank"):
        shapes["candidate_selector.hidden_projection.weight"] = rank, width
        for name in ("predecessor", "successor"):
            shapes[f"candidate_selector.{name}_codebook"] = size, rank
        taps, groups = words["conv_kernel_size"], width // words["conv_group_size"]
        for number in range(config["num_hidden_layers"]):
            for part in ("attention_conv", "mlp_conv"):
                name = f"layers.{number}.{part}"
                shapes[f"{name}.base_kernel"] = 2, taps, width
                shapes[f"{name}.kernel_projection.weight"] = 2 * taps * groups, width
    return DFLASH["weights"](config, seed) | drawn(shapes, seed + 1)


def rounds(config: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
    """A text with the target's states, and where three rounds begin in each row."""
    random, rows = np.random.default_rng(seed), len(ACCEPTED[0])
    begins = FIRST + np.cumsum([[0] * rows, *(np.array(row) + 1 for row in ACCEPTED)], axis=0)
    length, states = begins.max(), len(READ["target_layer_ids"]) * config["hidden_size"]
    drafted = random.integers(2, config["vocab_size"], (len(ACCEPTED), rows, 4))
    return {
        "tokens": random.integers(2, config["vocab_size"], (rows, length)).astype(np.int32),
        "features": random.normal(0, 2, (rows, length, states)).astype(np.float32),
        "rejected": random.normal(0, 2, (rows, length, states)).astype(np.float32),
        "lengths": begins[: len(ACCEPTED)].astype(np.int32),
        "drafted": drafted.astype(np.int32),
    }


def main() -> None:
    (FOLDER / "blocks").mkdir(exist_ok=True)
    for kind, config in KINDS.items():
        tensors, given = weights(config, SEED), rounds(config, SEED)
        target = DFLASH["tables"](config, SEED + 2)
        drafter = Drafter(config, tensors, **target)
        logits = [
            [
                drafter.round(row[length - 1], states[: length - 1], tokens)
                for row, states, length, tokens in zip(
                    given["tokens"], given["features"], lengths, drafted, strict=True
                )
            ]
            for lengths, drafted in zip(given["lengths"], given["drafted"], strict=True)
        ]
        save(FOLDER / "blocks" / kind, config, tensors)
        arrays = {name: tensor.numpy() for name, tensor in target.items()}
        expected = given | arrays | {"logits": np.array(logits)}
        save_file(expected, FOLDER / "blocks" / kind / "expected.safetensors")
        print(
            f"{kind}: logits of standard deviation {np.std(logits, where=np.isfinite(logits)):.2f}"
        )


if __name__ == "__main__":
    main()
