"""Parses the text of a compiled XLA program and traces the origin of operands."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping

Place = tuple[str, str]
"""A computation and an instruction in it."""

_COMMENT = re.compile(r"/\*.*?\*/")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([^}]*)\})?")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|true_computation|false_computation|branch_computations"
    r"|called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_BITS = re.compile(r"\d+")
_SPACE = re.compile(r"S\((\d+)\)")

MOVING = ("bitcast", "copy", "reshape", "transpose")
"""Instructions that change the location of numbers, but not the numbers."""

_PARTS = ("slice-start", "slice-done")  # on their way to fast memory, assembled by ...
_TOGETHER = 'custom_call_target="ConcatBitcast"'

PASSING = (*MOVING, *_PARTS, "convert", "copy-start", "copy-done", "opt-barrier")
"""Instructions that return their operand or a part of it."""


@dataclasses.dataclass(frozen=True)
class Array:
    """The type of an array."""

    dtype: str
    dims: tuple[int, ...]
    space: int = 0  # of memory; 0: the device's main memory

    @property
    def size(self) -> int:
        """Bytes, without the padding of tiles."""
        bits = _BITS.search(self.dtype)
        return math.ceil(math.prod(self.dims) * (int(bits[0]) if bits else 8) / 8)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    arrays: tuple[Array, ...]  # of the result; several of a tuple
    operands: tuple[str, ...]
    inside: str  # the text between the parentheses
    attributes: str
    root: bool

    @property
    def size(self) -> int:
        """Bytes of the result."""
        return sum(array.size for array in self.arrays)

    @functools.cached_property
    def called(self) -> tuple[tuple[str, str], ...]:
        """(role, computation) of everything that it calls."""
        return tuple(
            (role, name)
            for role, names in _CALLED.findall(self.attributes)
            for name in re.findall(r"[\w.\-]+", names)
        )

    @property
    def op_name(self) -> str:
        """JAX's name of the operation; for arguments of the program their path."""
        match = _NAME.search(self.attributes)
        return re.sub(r"\\(.)", r"\1", match[1]) if match else ""

    @property
    def index(self) -> int:
        """The index of a parameter or of a tuple element."""
        if self.opcode == "get-tuple-element":
            return int(re.findall(r"index=(\d+)", self.attributes)[0])
        return int(self.inside)


Computation = Mapping[str, Instruction]
"""Instructions by name, in their order."""


@dataclasses.dataclass(frozen=True)
class Caller:
    """The instruction that runs a computation, and its role."""

    computation: str
    instruction: Instruction
    role: str
    branch: int  # among those of this role


@dataclasses.dataclass(frozen=True)
class Program:
    """All computations of a compiled program."""

    computations: Mapping[str, Computation]
    entry: str

    @functools.cached_property
    def callers(self) -> dict[str, Caller]:
        """The first caller of every computation."""
        callers: dict[str, Caller] = {}
        for name, computation in self.computations.items():
            for instruction in computation.values():
                role_counts: dict[str, int] = {}
                for role, called in instruction.called:
                    caller = Caller(name, instruction, role, role_counts.get(role, 0))
                    role_counts[role] = caller.branch + 1
                    callers.setdefault(called, caller)
        return callers

    def within(
        self, name: str, *, loops: bool = True, include_fused: bool = False
    ) -> tuple[str, ...]:
        """A computation and all that it runs, in loops too (`loops`).

        With `include_fused` also the computations of fusions and reductions.
        """
        steps = ("conditional", "call", *["while"] * loops)
        reached, waiting = dict.fromkeys([name]), [name]
        while waiting:
            for instruction in self.computations[waiting.pop()].values():
                runs = instruction.opcode in steps or instruction.opcode.startswith("async")
                for role, called in instruction.called:
                    wanted = include_fused or (runs and role != "condition")
                    if wanted and called not in reached:
                        reached[called] = None
                        waiting.append(called)
        return tuple(reached)

    def instructions(self, names: tuple[str, ...]) -> Iterator[tuple[str, Instruction]]:
        """(computation, instruction) of all computations."""
        for name in names:
            for instruction in self.computations[name].values():
                yield name, instruction

    def loops(self, name: str) -> tuple[str, ...]:
        """Bodies of the outermost loops of a computation."""
        return tuple(
            called
            for _, instruction in self.instructions(self.within(name, loops=False))
            for role, called in instruction.called
            if role == "body"
        )

    def largest_loop(self, scope: str) -> str | None:
        """The body of the outermost loop with most instructions, within a scope if possible."""
        loops = self.loops(self.entry)
        scoped = [one for one in loops if f"/{scope}/" in self.callers[one].instruction.op_name]
        return max(scoped or loops, key=self._length, default=None)

    def _length(self, name: str) -> int:
        return sum(len(self.computations[inner]) for inner in self.within(name, include_fused=True))

    def moves(self, instruction: Instruction) -> bool:
        """Whether an instruction, or all that it fuses, only moves or re-lays out an array."""
        if instruction.opcode in ("copy", "transpose"):
            return True
        if instruction.opcode != "fusion":
            return False
        inner = [
            part.opcode
            for _, name in instruction.called
            for part in self.computations[name].values()
        ]
        moved = {"copy", "transpose"} & {*inner}
        return bool(moved) and {*inner} <= {"parameter", *MOVING}

    def origin(self, computation: str, name: str) -> Place | None:
        """The program argument that an array is a moved copy of; None if it was computed."""
        place: Place | None = (computation, name)
        while place is not None:
            computation, name = place
            instruction = self.computations[computation][name]
            if instruction.opcode == "parameter" and computation == self.entry:
                return place
            place = self._before(computation, instruction)
        return None

    def _before(self, computation: str, instruction: Instruction) -> Place | None:
        """The instruction that the same array comes from."""
        if instruction.opcode == "parameter":
            return self._get_operand(computation, instruction.index)
        if instruction.opcode == "get-tuple-element":
            return self._element(computation, instruction.operands[0], instruction.index)
        passing = instruction.opcode in PASSING or self.moves(instruction)
        if (passing or _TOGETHER in instruction.attributes) and instruction.operands:
            return computation, instruction.operands[0]
        return None

    def _get_operand(self, computation: str, index: int) -> Place | None:
        """The operand passed to parameter `index` of a computation."""
        caller = self.callers.get(computation)
        if caller is None:
            return None
        offset = {"branch_computations": caller.branch + 1, "true_computation": 1}
        place = offset.get(caller.role, 2 if caller.role == "false_computation" else index)
        operands = caller.instruction.operands
        return (caller.computation, operands[place]) if place < len(operands) else None

    def _element(self, computation: str, name: str, index: int) -> Place | None:
        """The origin of element `index` of a tuple."""
        while True:
            instruction = self.computations[computation][name]
            if instruction.opcode == "tuple":
                return computation, instruction.operands[index]
            if instruction.opcode == "while":
                name = instruction.operands[0]
                continue
            if instruction.opcode != "parameter":
                return None
            given = self._get_operand(computation, instruction.index)
            if given is None:
                return None
            computation, name = given


def parse_program(text: str) -> Program:
    """The program of `compiled.as_text()`.

    Raises:
      ValueError: when it has no entry.
    """
    computations: dict[str, dict[str, Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        line = _COMMENT.sub("", line)
        if head := _HEAD.match(line.rstrip()):
            current = computations.setdefault(head[2], {})
            entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (start := _INSTRUCTION.match(line)):
            instruction = _instruction(start, line)
            current[instruction.name] = instruction
    if not entry:
        raise ValueError("the text has no ENTRY computation; it is no compiled program")
    return Program(computations, entry)


def _instruction(start: re.Match[str], line: str) -> Instruction:
    """Parses the instruction of a line with the given start."""
    rest = line[start.end() :]
    end = _find_closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    opcode = _OPCODE.match(rest, end)
    if opcode is None:
        raise ValueError(f"a line of the text has no operation: {line!r}")
    close = _find_closing(rest, opcode.end() - 1)
    inside = rest[opcode.end() : close]
    arrays = tuple(
        Array(
            dtype,
            tuple(int(n) for n in dims.split(",") if n),
            int(space[1]) if (space := _SPACE.search(layout)) else 0,
        )
        for dtype, dims, layout in _ARRAY.findall(rest[:end])
    )
    operands = tuple(_OPERAND.findall(inside))
    return Instruction(
        start[2], opcode[1], arrays, operands, inside, rest[close + 1 :], bool(start[1])
    )


def _find_closing(text: str, start: int) -> int:
    """Position of the parenthesis that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place
    raise ValueError(f"a parenthesis is not closed in {text[:80]!r}")
