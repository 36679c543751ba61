"""The audit of a compiled program: memory, copies, collectives, and what its rounds read.

All figures are of one device. A decode's rounds are the loop of that scope, in other programs the
largest; loops inside of a round, as of a drafter's tokens, are counted as if they ran once.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import Any

from specjax.accelerators.hlo import Instruction, Program, parse_program
from specjax.contracts.rows import CATCHING_UP, ROUNDS

_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|collective-broadcast)"
    r"(-start)?"
)
_CHANNEL = re.compile(r"channel_id=(\d+)")
_SCATTERED = "all-reduce-scatter"
"""How XLA calls the fusion that a reduce-scatter is on TPUs."""

_PARAMETER = re.compile(r"params\['([^']*)'\](?!.*\['ff'\]\['(gates|ups|downs)'\])")
"""Of a model, but for its experts: how many of these are read is not for the program to say."""
_SILENT = ("get-tuple-element", "parameter", "tuple", "while", "conditional", "call", "bitcast")
"""Instructions that read nothing themselves."""

_GATHERING = ("gather", "dynamic-slice", "slice")


@dataclasses.dataclass(frozen=True)
class Copy:
    """An array that the program only puts elsewhere, or into another layout."""

    source: str  # path of the parameter that it is; empty: computed
    dtype: str
    dims: tuple[int, ...]
    size: int  # bytes
    in_loop: bool


@dataclasses.dataclass(frozen=True)
class WeightReads:
    """Bytes of a model's parameters that are read from the device's main memory."""

    once: int  # in a round, outside of the loops in it
    turn: int  # in a turn of the loop in it that reads most

    def of(self, calls: int) -> int:
        """In a round with so many calls of the model: the first outside of the loop, if any is."""
        return self.once + self.turn * (calls - (self.once > 0))


@dataclasses.dataclass(frozen=True)
class Audit:
    """What the text of a program says."""

    copies: tuple[Copy, ...]
    collectives: dict[str, int]  # of a round, by kind; of a program without loop, of all of it
    weights: dict[str, WeightReads]  # of a round, by the name of the parameter tree
    loops: int  # inside of a round
    wide_products: int  # of float32 operands, in a round; in bfloat16 programs there are to be none

    def copied(self, in_loop: bool) -> int:
        """Bytes copied in a round, or before and after the rounds."""
        return sum(copy.size for copy in self.copies if copy.in_loop == in_loop)


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes as the compiler counts them, padding included."""

    arguments: int
    temporaries: int
    outputs: int
    aliased: int  # outputs that take the place of donated arguments
    code: int

    @property
    def total(self) -> int:
        """All that is there while the program runs."""
        return self.arguments + self.temporaries + self.outputs - self.aliased + self.code


def measure_memory(compiled: Any) -> Memory:
    """What a compiled program takes on each device."""
    analysis = compiled.memory_analysis()
    return Memory(
        analysis.argument_size_in_bytes,
        analysis.temp_size_in_bytes,
        analysis.output_size_in_bytes,
        analysis.alias_size_in_bytes,
        analysis.generated_code_size_in_bytes,
    )


def audit_program(text: str, *, rounds: bool = True) -> Audit:
    """The audit of `compiled.join_as_text()`; a program without `rounds`, as a step of training,
    may
     have loops too, and is counted as a whole."""
    program = parse_program(text)
    body = program.largest_loop(ROUNDS) if rounds else None
    inside = () if body is None else program.within(body)
    fused = program.within(body or program.entry, fused=True)
    return Audit(
        find_copies(program, inside),
        count_collectives(program, fused),
        {} if body is None else count_weight_reads(program, body),
        sum(instruction.opcode == "while" for _, instruction in program.instructions(inside)),
        count_wide_products(program, fused),
    )


def find_copies(program: Program, inside: tuple[str, ...]) -> tuple[Copy, ...]:
    """All copies; those of the computations `inside` are in the loop."""
    copies = []
    for where, instruction in program.instructions(program.within(program.entry)):
        if program.moves(instruction):
            origin = program.origin(where, instruction.name)
            source = program.computations[origin[0]][origin[1]].op_name if origin else ""
            array = instruction.arrays[0]
            copy = Copy(source, array.dtype, array.dims, instruction.size, where in inside)
            copies.append(copy)
    return tuple(copies)


def count_collectives(program: Program, names: tuple[str, ...]) -> dict[str, int]:
    """How many collectives of each kind the computations have.

    One that runs beside other work stands there in several pieces, which have its channel.
    """
    seen = set()
    for where, instruction in program.instructions(names):
        if match := _COLLECTIVE.fullmatch(instruction.opcode):
            if where.startswith(_SCATTERED):
                seen.add(("reduce-scatter", where))
                continue
            channel = _CHANNEL.search(instruction.attributes)
            seen.add((match[1], channel[1] if channel else (where, instruction.name)))
    return dict(sorted(collections.Counter(kind for kind, _ in seen).items()))


def count_wide_products(program: Program, names: tuple[str, ...]) -> int:
    """Matrix products with a float32 operand."""

    def wide(where: str, operand: str) -> bool:
        return program.computations[where][operand].arrays[0].dtype == "f32"

    return sum(
        any(wide(where, operand) for operand in instruction.operands)
        for where, instruction in program.instructions(names)
        if instruction.opcode in ("dot", "convolution")
    )


def count_weight_reads(program: Program, body: str) -> dict[str, WeightReads]:
    """What a round reads of the parameters in main memory, by the name of their tree.

    Of a table that is only looked up a few rows are read: that does not count. Nor does what the
    compiler keeps in fast memory, through all rounds or through a loop inside of one. Catching up
    is left out: few rounds do it. So are experts, of which a call reads those that its tokens have.
    """
    once = _reads(program, program.within(body, loops=False))
    turns = [
        _reads(program, program.within(name))
        for name in program.loops(body)
        if CATCHING_UP not in program.callers[name].instruction.op_name
    ]
    names = dict.fromkeys([*once, *(name for turn in turns for name in turn)])
    return {
        name: WeightReads(once.get(name, 0), max((turn.get(name, 0) for turn in turns), default=0))
        for name in names
    }


def _reads(program: Program, names: tuple[str, ...]) -> dict[str, int]:
    """Bytes of parameters that computations read from main memory, by the name of their tree."""
    reads: dict[str, int] = {}
    for where, instruction in program.instructions(names):
        if instruction.opcode in _SILENT or instruction.opcode.endswith("-done"):
            continue
        for place, operand in enumerate(instruction.operands):
            size = _read_of(program, where, instruction, place)
            origin = size and program.origin(where, operand)
            argument = program.computations[origin[0]][origin[1]].op_name if origin else ""
            if name := _PARAMETER.match(argument):
                reads[name[1]] = reads.get(name[1], 0) + size
    return reads


def _read_of(program: Program, where: str, instruction: Instruction, place: int) -> int:
    """Bytes that an instruction reads of its operand `place`, if that lies in main memory."""
    arrays = program.computations[where][instruction.operands[place]].arrays
    if len(arrays) != 1 or arrays[0].space:
        return 0
    if instruction.opcode == "slice-start":
        return instruction.arrays[1].size
    return 0 if _reads_slices_only(program, instruction, place) else arrays[0].size


def _reads_slices_only(program: Program, instruction: Instruction, place: int) -> bool:
    """Whether an instruction reads slices of its operand `place` and not all of it."""
    if instruction.opcode in _GATHERING:
        return place == 0
    if instruction.opcode != "fusion":
        return False
    name = next(called for role, called in instruction.called if role == "calls")
    inner = program.computations[name]
    names = {
        part.name for part in inner.values() if part.opcode == "parameter" and part.index == place
    }
    uses = []
    for part in inner.values():
        if names & {*part.operands}:
            if part.opcode in ("bitcast", "reshape"):
                names.add(part.name)
            else:
                uses.append(part)
    return bool(uses) and all(use.opcode in _GATHERING and use.operands[0] in names for use in uses)
