"""A folder of SmolLM2's kind with random weights, for who has not the published ones."""

from __future__ import annotations

from pathlib import Path

import jax

from specjax.data import grammar
from specjax.hf import huggingface
from specjax.hf.tokenizer import train_byte_tokenizer
from specjax.models.causal import Causal
from specjax.models.causal_config import CausalConfig
from specjax.models.positions import Rope

BEGIN, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    f"{{% for message in messages %}}{BEGIN}{{{{ message.role }}}}\n"
    f"{{{{ message.content }}}}{END}\n{{% endfor %}}"
    f"{{% if add_generation_prompt %}}{BEGIN}assistant\n{{% endif %}}"
)
"""Messages between their marks, as SmolLM2's own has them; it has no system message."""

VOCABULARY = 320


def write_small_smollm2(folder: Path) -> None:
    """Writes a checkpoint: Llama's layers, nine heads on three of keys, tied, a chat template."""
    tokenizer = train_byte_tokenizer([pair.source for pair in grammar.pairs("train", 20)], 300)
    tokenizer.add_special_tokens({"bos_token": BEGIN, "eos_token": END, "pad_token": END})
    tokenizer.chat_template = TEMPLATE
    begin, end = tokenizer.convert_tokens_to_ids([BEGIN, END])
    shape = CausalConfig(
        family="llama", vocab_size=VOCABULARY, d_model=36, d_ff=96, num_layers=2, num_heads=9,
        num_kv_heads=3, d_head=4, max_positions=8192, rope=Rope(4, theta=100_000.0), tied=True,
        eps=1e-5, bos=begin, eos=(end,), pad=end,
    )  # fmt: skip
    model = Causal(shape)
    params = jax.tree.map(lambda x: x * 2.0, model.init(jax.random.key(0)))
    huggingface.save(folder, model, params, tokenizer)
