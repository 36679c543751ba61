"""Audits a compiled program: memory, copies, collectives, and reads of its rounds.

All figures are per device. The rounds of a decode are the loop of that scope, in other programs the
largest loop. Loops inside of a round, as of a drafter's tokens, count as if they ran once.
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
"""XLA's name of the fusion that implements reduce-scatter on TPUs."""

_PARAMETER = re.compile(r"params\['([^']*)'\](?!.*\['ff'\]\['(gates|ups|downs)'\])")
"""Parameters other than experts; the program does not show how many experts are read."""
_SILENT = ("get-tuple-element", "parameter", "tuple", "while", "conditional", "call", "bitcast")
"""Instructions that read nothing themselves."""

_GATHERING = ("gather", "dynamic-slice", "slice")


@dataclasses.dataclass(frozen=True)
class Copy:
    """A copy of an array to another place or layout."""

    source: str  # path of the parameter that it is; empty: computed
    dtype: str
    dims: tuple[int, ...]
    size: int  # bytes
    in_loop: bool


@dataclasses.dataclass(frozen=True)
class WeightReads:
    """Bytes of a model's parameters that are read from the device's main memory."""

    once: int  # in a round, outside of the loops in it
    turn: int  # in a turn of its loop that reads most

    def count_bytes(self, calls: int) -> int:
        """Bytes in a round with `calls` calls of the model, the first one outside of the loop."""
        return self.once + self.turn * (calls - (self.once > 0))


@dataclasses.dataclass(frozen=True)
class Audit:
    """Findings from the text of a program."""

    copies: tuple[Copy, ...]
    collectives: dict[str, int]  # of a round, by kind; of a program without loop, of all of it
    weights: dict[str, WeightReads]  # of a round, by the name of the parameter tree
    loops: int  # inside of a round
    wide_products: int  # with float32 operands in a round; expected to be none in bfloat16 programs

    def count_copied_bytes(self, in_loop: bool) -> int:
        """Bytes copied in a round, or before and after the rounds."""
        return sum(copy.size for copy in self.copies if copy.in_loop == in_loop)


@dataclasses.dataclass(frozen=True)
class Memory:
    """Memory in bytes by the compiler's count, including padding."""

    arguments: int
    temporaries: int
    outputs: int
    aliased: int  # outputs in donated arguments
    code: int

    @property
    def total(self) -> int:
        """All memory in use while the program runs."""
        return self.arguments + self.temporaries + self.outputs - self.aliased + self.code


def measure_memory(compiled: Any) -> Memory:
    """Memory of a compiled program on each device."""
    analysis = compiled.memory_analysis()
    return Memory(
        analysis.argument_size_in_bytes,
        analysis.temp_size_in_bytes,
        analysis.output_size_in_bytes,
        analysis.alias_size_in_bytes,
        analysis.generated_code_size_in_bytes,
    )


def audit_program(text: str, *, rounds: bool = True) -> Audit:
    """The audit of `compiled.as_text()`.

    A program without `rounds`, as a training step, may have loops too and is counted as a whole.
    """
    program = parse_program(text)
    body = program.largest_loop(ROUNDS) if rounds else None
    inside = () if body is None else program.within(body)
    computations = program.within(body or program.entry, include_fused=True)
    return Audit(
        find_copies(program, inside),
        count_collectives(program, computations),
        {} if body is None else count_weight_reads(program, body),
        sum(instruction.opcode == "while" for _, instruction in program.instructions(inside)),
        count_wide_products(program, computations),
    )


def find_copies(program: Program, inside: tuple[str, ...]) -> tuple[Copy, ...]:
    """All copies; copies in the computations `inside` belong to the loop."""
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

    An asynchronous collective consists of several instructions with one channel.
    """
    collectives = set()
    for where, instruction in program.instructions(names):
        if match := _COLLECTIVE.fullmatch(instruction.opcode):
            if where.startswith(_SCATTERED):
                collectives.add(("reduce-scatter", where))
                continue
            channel = _CHANNEL.search(instruction.attributes)
            collectives.add((match[1], channel[1] if channel else (where, instruction.name)))
    return dict(sorted(collections.Counter(kind for kind, _ in collectives).items()))


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
    """Bytes of parameters in main memory that a round reads, by tree.

    Lookups of a few rows of a table do not count, nor parameters that the compiler keeps in fast
    memory through all rounds or a loop inside of one. Catch-up calls are left out, as few rounds
    have one. So are experts, of which a call reads those that its tokens use.
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
    """Bytes of parameters that computations read from main memory, by tree."""
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
    """Bytes that an instruction reads of operand `place`, if it is in main memory."""
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
