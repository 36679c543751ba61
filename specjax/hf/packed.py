"""Kernels that a checkpoint stores packed: compressed-tensors, GPTQ, AWQ, and experts in MXFP4.

They become exactly the arrays that `weights` of `load` makes (`models.quantized_weights`): no
number is rounded, except scales to the dtype. docs/methods/quantized_weights.md lists the supported
formats.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from specjax.hf import mxfp4
from specjax.hf.families.family import Stored
from specjax.hf.families.schema import Field, Schema, choice, format_value, only, raw, read
from specjax.hf.finite import is_finite
from specjax.hf.tensors import Place, Placement, open_file, place_kernel
from specjax.models.base import Params, Where
from specjax.models.quantized_weights import MXFP4, WeightFormat, make_quantized_kernel
from specjax.runtime.errors import UserError

WORD = 32
"""Bits of the integers that numbers are packed in, the first number lowest."""

AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""The position of each of eight numbers in AWQ's words."""

_PARTS = {
    "pack-quantized": ("weight_packed", "weight_scale", "weight_shape"),
    "int-quantized": ("weight", "weight_scale"),
    "gptq": ("qweight", "qzeros", "scales", "g_idx"),
    "gptq_v2": ("qweight", "qzeros", "scales", "g_idx"),
    "awq": ("qweight", "qzeros", "scales"),
}
"""Tensors of a kernel by layout; the first has the integers."""

_OPTIONAL = ("weight_shape", "g_idx")


@dataclasses.dataclass(frozen=True)
class Packing:
    """How a checkpoint stores the kernels that it names by `_PARTS`."""

    layout: str
    weights: WeightFormat

    @property
    def bits(self) -> int:
        return 4 if self.weights.kind == "int4" else 8


def parse_packing(hf: Mapping[str, Any]) -> Packing | None:
    """The packing of a configuration's `quantization_config`; None without it.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    config = hf.get("quantization_config")
    if config is None:
        return None
    method = config.get("quant_method") if isinstance(config, dict) else None
    if not isinstance(method, str) or method not in _METHODS:
        raise ValueError(
            f"quantization_config is {format_value(config)}; of quantized weights those whose "
            "quant_method"
            f" is one of {', '.join(_METHODS)} are read"
        )
    try:
        return _METHODS[method](config)
    except ValueError as error:
        raise ValueError(f"quantization_config: {error}") from None


def _bits(*allowed: int) -> Field:
    words = " or ".join(map(str, allowed))
    return Field(allowed[0], words, lambda value: type(value) is int and value in allowed)


def _group_size(default: int | None) -> Field:
    def fits(value: Any) -> bool:
        return type(value) is int and (value == -1 or 0 < value <= 2**20)

    return Field(default, "-1, for all inputs, or a positive integer", fits)


def _small(bits: int, group: int | None) -> WeightFormat:
    return WeightFormat(f"int{bits}", group if group and group > 0 else 0)


_GROUP = Schema(
    {
        "targets": Field(["Linear"], '["Linear"]', lambda value: value == ["Linear"]),
        "input_activations": only(None, "activations are not quantized"),
        "output_activations": only(None, "activations are not quantized"),
        "weights": raw(),
    },
    harmless=("format",),
)
_WEIGHTS = Schema(
    {
        "num_bits": _bits(8, 4),
        "type": choice("int", ("int",)),
        "symmetric": only(True, "zero points are read of AWQ only"),
        "strategy": choice(None, ("group", "channel")),
        "group_size": _group_size(None),
        "dynamic": only(False),
        "actorder": choice(None, ("weight", "static")),
        "block_structure": only(None),
    },
    harmless=("observer", "observer_kwargs", "scale_dtype", "zp_dtype"),
)


def _compressed_tensors(config: Mapping[str, Any]) -> Packing:
    top = Schema(
        {
            "format": choice(None, ("pack-quantized", "int-quantized")),
            "config_groups": raw(),
            "kv_cache_scheme": only(None, "caches are not quantized"),
            "quantization_status": choice("compressed", ("compressed",)),
            "sparsity_config": _nothing(),
            "transform_config": _nothing(),
        },
        harmless=("quant_method", "ignore", "global_compression_ratio", "version"),
    )
    fields = read(top, config)
    groups = fields["config_groups"]
    if not isinstance(groups, dict) or len(groups) != 1:
        raise ValueError(f"config_groups is {format_value(groups)}; it must be one group")
    group = next(iter(groups.values()))
    weights = read(_GROUP, group)["weights"] if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        raise ValueError(f"config_groups is {format_value(groups)}; it must have weights")
    if fields["format"] is None:
        raise ValueError("the field 'format' is missing")
    values = read(_WEIGHTS, weights)
    size = None if values["strategy"] == "channel" else values["group_size"]
    if fields["format"] == "int-quantized" and values["num_bits"] != 8:
        raise ValueError("num_bits is 4; of format int-quantized it must be 8")
    return Packing(fields["format"], _small(values["num_bits"], size))


def _nothing() -> Field:
    return Field(None, "empty", lambda value: not value)


_GPTQ = Schema(
    {
        "bits": _bits(4, 8),
        "group_size": _group_size(128),
        "desc_act": only(False, "groups must be inputs that follow each other"),
        "sym": only(True, "zero points are read of AWQ only"),
        "checkpoint_format": choice("gptq", ("gptq", "gptq_v2")),
        "is_marlin_format": only(False),
        "pack_dtype": choice("int32", ("int32",)),
        "dynamic": _nothing(),
    },
    harmless="""
    act_group_aware backend batch_size block_name_to_quantize cache_block_outputs
    damp_auto_increment damp_percent dataset disable_exllama exllama_config lm_head
    max_input_length meta model_file_base_name model_name_or_path model_seqlen
    module_name_preceding_first_block modules_in_block_to_quantize mse pad_token_id quant_method
    quantizer static_groups tokenizer true_sequential use_cuda_fp16 use_exllama
    """.split(),  # noqa: SIM905
)


def _gptq(config: Mapping[str, Any]) -> Packing:
    values = read(_GPTQ, config)
    return Packing(values["checkpoint_format"], _small(values["bits"], values["group_size"]))


_AWQ = Schema(
    {
        "bits": _bits(4),
        "group_size": _group_size(128),
        "zero_point": only(True),
        "version": Field("gemm", "gemm", lambda value: str(value).lower() == "gemm"),
    },
    others={"format": "version", "w_bit": "bits", "q_group_size": "group_size"},
    harmless=("quant_method", "modules_to_not_convert", "backend", "do_fuse", "exllama_config"),
)


def _awq(config: Mapping[str, Any]) -> Packing:
    values = read(_AWQ, config)
    return Packing("awq", _small(values["bits"], values["group_size"]))


_MXFP4 = Schema({}, harmless=("quant_method", "modules_to_not_convert", "dequantize"))


def _mxfp4(config: Mapping[str, Any]) -> Packing:
    read(_MXFP4, config)
    return Packing(MXFP4, mxfp4.WEIGHTS)


_METHODS: dict[str, Callable[[Mapping[str, Any]], Packing]] = {
    "compressed-tensors": _compressed_tensors,
    "gptq": _gptq,
    "awq": _awq,
    MXFP4: _mxfp4,
}


def find_packed_kernels(
    files: Mapping[str, Place],
    names: Mapping[Where, Stored],
    packing: Packing | None,
    family: str,
) -> dict[Where, dict[str, str]]:
    """The tensors by part of every packed kernel.

    Raises:
      UserError: when a packed tensor of the `family` is no kernel, or not the whole of one.
    """
    if packing is None:
        return {}
    if packing.layout == MXFP4:
        return mxfp4.find_kernels(files, names)
    first, *others = _PARTS[packing.layout]
    found = {}
    for where, stored in names.items():
        for tensor in stored.tensors:
            base = tensor.removesuffix(".weight")
            if base == tensor or not {f"{base}.{first}", f"{base}.{others[0]}"} <= files.keys():
                continue
            if not stored.transposed or stored.parts > 1 or stored.stacked:
                raise UserError(
                    f"tensor {f'{base}.{first}'!r} is packed, and of family {family!r} it is"
                    f" {_words(stored)}; packed checkpoints are read where a tensor is one whole"
                    " kernel, as in Llama's"
                )
            parts = {part: f"{base}.{part}" for part in (first, *others)}
            found[where] = {part: name for part, name in parts.items() if name in files}
    return found


def _words(stored: Stored) -> str:
    """Describes a tensor that is not one whole kernel."""
    if stored.stacked:
        return "one of stacked experts"
    return "several kernels in one" if stored.parts > 1 else "stored with inputs first"


def read_packed(
    params: Params,
    files: Mapping[str, Place],
    kernels: Mapping[Where, Mapping[str, str]],
    packing: Packing,
    names: Mapping[Where, Stored],
    shapes: Mapping[Where, tuple[int, ...]],
    dtype: Any,
    placement: Placement,
) -> None:
    """Puts what `find_packed_kernels` has found into a tree, on their devices."""
    for where, parts in kernels.items():
        node = params
        for key in where[:-1]:
            node = node.setdefault(key, {})
        if packing.layout == MXFP4:
            made = mxfp4.read_kernel(files, parts, names[where], shapes[where], dtype)
        else:
            made = read_kernel(files, parts, packing, shapes[where], dtype)
        node[where[-1]] = place_kernel(made, where, placement)


def read_kernel(
    files: Mapping[str, Place], parts: Mapping[str, str], packing: Packing, shape: Any, dtype: Any
) -> Any:
    """A packed kernel [D, F] as integers, scales of `dtype` and, of AWQ, zero points.

    Raises:
      UserError: when a tensor is missing, or does not fit its layout and config.json.
    """
    tensors = {}
    for part in _PARTS[packing.layout]:
        if part in parts:
            place = files[parts[part]]
            with open_file(place.file) as file:
                tensors[part] = file.get_tensor(place.name)
        elif part not in _OPTIONAL:
            raise UserError(f"the checkpoint lacks {part!r} next to {next(iter(parts.values()))!r}")
    try:
        integers, scale, zero = _numbers(tensors, packing)
        if not is_finite(scale):
            raise ValueError("its scales are not finite")
        _check_shapes(integers, scale, zero, packing, shape)
        _check_order(tensors.get("g_idx"), packing.weights.group or shape[0], shape[0])
    except ValueError as error:
        name, file = next(iter(parts.values())), str(files[next(iter(parts.values()))].file)
        raise UserError(f"tensor {name!r} of {file!r} cannot be used: {error}") from None
    return make_quantized_kernel(integers, jnp.asarray(scale).astype(dtype), zero, packing.weights)


def _numbers(
    tensors: Mapping[str, np.ndarray], packing: Packing
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Integers [D, F], scales [G, F] and zero points [G, F] (None: all 0), signed."""
    layout, bits, half = packing.layout, packing.bits, 1 << (packing.bits - 1)
    if layout == "int-quantized":
        if tensors["weight"].dtype != np.int8:
            raise ValueError(f"it must be int8, not {tensors['weight'].dtype}")
        return tensors["weight"].T, tensors["weight_scale"].T, None
    if layout == "pack-quantized":
        packed = tensors["weight_packed"]
        inputs = int(tensors["weight_shape"][1]) if "weight_shape" in tensors else None
        return (unpack_bits(packed, bits, 1)[:, :inputs] - half).T, tensors["weight_scale"].T, None
    scale = tensors["scales"]
    if layout == "awq":
        integers, zero = (unpack_bits(tensors[p], 4, 1, AWQ_ORDER) for p in ("qweight", "qzeros"))
        return integers - half, scale, zero - half
    zero = unpack_bits(tensors["qzeros"], bits, 1)
    if np.any(zero != half - (layout == "gptq")):
        raise ValueError("its zero points are not those of symmetric weights")
    return unpack_bits(tensors["qweight"], bits, 0) - half, scale, None


def unpack_bits(
    words: np.ndarray, bits: int, axis: int, order: tuple[int, ...] | None = None
) -> np.ndarray:
    """Unpacks numbers of `bits` bits, unsigned as int16, from 32-bit words [A, B] along an axis.

    `order` is the position of each number in a word; by default the first one is lowest.

    Raises:
      ValueError: when the words are something else.
    """
    if words.dtype != np.int32 or words.ndim != 2:
        raise ValueError(f"it must have two axes of int32, not {words.ndim} of {words.dtype}")
    place = np.arange(WORD // bits) if order is None else np.array(order)
    shifts = (place * bits).astype(np.uint32).reshape((-1, 1) if axis == 0 else (1, -1))
    spread = np.expand_dims(words.view(np.uint32), axis + 1) >> shifts & ((1 << bits) - 1)
    shape = list(words.shape)
    shape[axis] *= len(place)
    return spread.astype(np.int16).reshape(shape)


def _check_shapes(
    integers: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None,
    packing: Packing,
    shape: tuple[int, ...],
) -> None:
    group = packing.weights.group or shape[0]
    scales = (shape[0] // group, shape[1])
    if integers.shape != shape:
        raise ValueError(f"it holds {integers.shape}, config.json requires {tuple(shape)}")
    if shape[0] % group or scale.shape != scales or (zero is not None and zero.shape != scales):
        raise ValueError(
            f"it has scales {scale.shape}, quantization_config requires groups of {group} inputs"
        )


def _check_order(groups: np.ndarray | None, size: int, inputs: int) -> None:
    """Refuses inputs [D] whose groups are not those of so many that follow each other."""
    if groups is not None and not np.array_equal(groups, np.arange(inputs) // size):
        raise ValueError(f"its g_idx must be groups of {size} inputs that follow each other")
