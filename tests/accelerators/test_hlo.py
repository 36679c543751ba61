"""The reader of compiled programs on a small text and on a program compiled here."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import specjax
from specjax.accelerators.hlo import Array, parse_program
from specjax.accelerators.program import WeightReads, audit_program
from specjax.contracts.rows import ROUNDS
from specjax.decoding.loop import generate
from specjax.models.attention import WHOLE_PROMPT
from specjax.models.causal import Causal
from specjax.models.causal_config import CausalConfig
from specjax.models.positions import Rope

TEXT = r"""HloModule jit_generate, is_scheduled=true

%fused_lookup (param_0.1: bf16[100,8], param_1: s32[1]) -> bf16[1,8] {
  %param_0.1 = bf16[100,8]{1,0} parameter(0)
  %param_1 = s32[1]{0} parameter(1)
  ROOT %gather.1 = bf16[1,8]{1,0} gather(%param_0.1, %param_1), offset_dims={1}
}

%fused_product (param_0.2: bf16[8,16], param_1.2: bf16[1,8]) -> bf16[1,16] {
  %param_0.2 = bf16[8,16]{1,0} parameter(0)
  %param_1.2 = bf16[1,8]{1,0} parameter(1)
  ROOT %dot.1 = bf16[1,16]{1,0} dot(%param_1.2, %param_0.2), lhs_contracting_dims={1}
}

%moved (param_0.3: bf16[8,16]) -> bf16[8,16] {
  %param_0.3 = bf16[8,16]{1,0} parameter(0)
  ROOT %copy.9 = bf16[8,16]{0,1} copy(%param_0.3)
}

%inner_body (inner: (s32[], bf16[8,16], bf16[8,16])) -> (s32[], bf16[8,16], bf16[8,16]) {
  %inner = (s32[], bf16[8,16]{1,0:T(8,128)(2,1)S(1)}, /*index=2*/bf16[8,16]{0,1}) parameter(0)
  %i = s32[] get-tuple-element(%inner), index=0
  %fast = bf16[8,16]{1,0:T(8,128)(2,1)S(1)} get-tuple-element(%inner), index=1
  %slow = bf16[8,16]{0,1} get-tuple-element(%inner), index=2
  %dot.2 = bf16[8,8]{1,0} dot(%fast, %slow), lhs_contracting_dims={1}
  ROOT %inner_root = (s32[], bf16[8,16], bf16[8,16]) tuple(%i, %fast, %slow)
}

%condition (state.1: (s32[], bf16[8,16], bf16[8,16])) -> pred[] {
  %state.1 = (s32[], bf16[8,16]{1,0}, bf16[8,16]{0,1}) parameter(0)
  ROOT %yes = pred[] constant(true)
}

%body (state: (s32[], bf16[8,16], bf16[100,8], bf16[8,16], bf16[1,2,9,4])) -> (s32[]) {
  %state = (s32[], bf16[8,16]{1,0}, bf16[100,8]{1,0}, bf16[8,16]{0,1}) parameter(0)
  %j = s32[1]{0} get-tuple-element(%state), index=0
  %w = bf16[8,16]{1,0} get-tuple-element(%state), index=1
  %table = bf16[100,8]{1,0} get-tuple-element(%state), index=2
  %v = bf16[8,16]{0,1} get-tuple-element(%state), index=3
  %x = bf16[1,8]{1,0} fusion(%table, %j), kind=kLoop, calls=%fused_lookup
  %y = bf16[1,16]{1,0} fusion(%w, %x), kind=kOutput, calls=%fused_product
  %all = bf16[1,16]{1,0} all-reduce(%y), replica_groups={}, to_apply=%add
  %start = (bf16[8,16]{1,0:S(1)}, bf16[8,16]{1,0}, u32[]{:S(2)}) copy-start(%w)
  %done = bf16[8,16]{1,0:S(1)} copy-done(%start)
  %packed = (s32[], bf16[8,16]{1,0:S(1)}, bf16[8,16]{0,1}) tuple(%j, %done, %v)
  %turns = (s32[], bf16[8,16], bf16[8,16]) while(%packed), condition=%condition, body=%inner_body
  %cache = bf16[1,2,9,4]{3,2,1,0} get-tuple-element(%state), index=4
  %anew = bf16[1,2,9,4]{3,1,2,0} copy(%cache)
  ROOT %next = (s32[]) tuple(%j, %w, %table, %v, %anew)
}

%add (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %sum = bf16[] add(%a, %b)
}

ENTRY %main (p0: bf16[8,16], p1: bf16[100,8], p2: bf16[8,16]) -> s32[] {
  %p0 = bf16[8,16]{1,0} parameter(0), metadata={op_name="params[\'target\'][\'kernel\']"}
  %p1 = bf16[100,8]{1,0} parameter(1), metadata={op_name="params[\'target\'][\'embedding\']"}
  %p2 = bf16[8,16]{1,0} parameter(2), metadata={op_name="params[\'drafter\'][\'kernel\']"}
  %zero = s32[] constant(0)
  %empty = bf16[1,2,9,4]{3,2,1,0} broadcast(%zero), dimensions={}
  %moved.1 = bf16[8,16]{0,1} fusion(%p2), kind=kLoop, calls=%moved
  %first = (s32[], bf16[8,16], bf16[100,8], bf16[8,16]) tuple(%zero, %p0, %p1, %moved.1, %empty)
  %rounds = (s32[]) while(%first), condition=%condition, body=%body
  ROOT %out = s32[] get-tuple-element(%rounds), index=0
}
"""


def test_an_instruction_is_read_with_layout_memory_and_name() -> None:
    program = parse_program(TEXT)
    start = program.computations["body"]["start"]
    assert start.opcode == "copy-start" and start.operands == ("w",)
    assert start.arrays[:2] == (Array("bf16", (8, 16), 1), Array("bf16", (8, 16), 0))
    assert program.computations["main"]["p0"].op_name == "params['target']['kernel']"
    assert Array("pred", (9,)).size == 9 and Array("s4", (3,)).size == 2


def test_the_rounds_are_the_largest_loop_of_the_entry_or_of_their_scope() -> None:
    program = parse_program(TEXT)
    assert program.largest_loop("rounds") == "body"
    body = "%pages (c: (s32[])) -> (s32[]) {\n  ROOT %c = (s32[]) parameter(0)\n}\n\nENTRY"
    loop = (
        "  %read = (s32[]) while(%first), condition=%condition, body=%pages, metadata=NAME\n  ROOT"
    )
    two = TEXT.replace("ENTRY", body).replace("  ROOT %out", f"{loop} %out")
    for scope, found in (("", "body"), ("rounds/", "pages")):
        named = two.replace("NAME", f'{{op_name="jit(generate)/{scope}while"}}')
        assert parse_program(named).largest_loop("rounds") == found
    assert program.within("body") == ("body", "inner_body")
    assert program.loops("body") == ("inner_body",)


def test_an_operand_is_followed_through_loops_and_copies_to_the_argument() -> None:
    program = parse_program(TEXT)
    assert program.origin("inner_body", "fast") == ("main", "p0")
    assert program.origin("inner_body", "slow") == ("main", "p2")
    assert program.origin("body", "y") is None


def test_parts_put_together_in_fast_memory_are_the_array_that_they_are_of() -> None:
    parts = """
  %part = ((bf16[8,16]{1,0}), bf16[4,16]{1,0:S(1)}, s32[]{:S(2)}) slice-start(%p2), slice={[0:4]}
  %part_done = bf16[4,16]{1,0:S(1)} slice-done(%part)
  %whole = bf16[8,16]{1,0:S(1)} custom-call(%part_done), custom_call_target="ConcatBitcast"
  %moved.1 = bf16[8,16]{0,1} fusion(%whole)"""
    changed = TEXT.replace("\n  %moved.1 = bf16[8,16]{0,1} fusion(%p2)", parts)
    assert changed != TEXT and parse_program(changed).origin("main", "moved.1") == ("main", "p2")


def test_copies_name_what_they_copy_and_where() -> None:
    copies = {(each.source, each.dims, each.in_loop) for each in audit_program(TEXT).copies}
    assert copies == {
        ("params['drafter']['kernel']", (8, 16), False),
        ("", (1, 2, 9, 4), True),
    }
    assert (
        audit_program(TEXT).count_copied_bytes(False),
        audit_program(TEXT).count_copied_bytes(True),
    ) == (256, 144)


def test_collectives_of_a_round_are_counted() -> None:
    assert audit_program(TEXT).collectives == {"all-reduce": 1}


def test_reads_leave_out_lookups_and_what_is_in_fast_memory() -> None:
    """The target's kernel is read by the product and by the move to fast memory."""
    found = audit_program(TEXT).weights
    assert found == {"target": WeightReads(512, 0), "drafter": WeightReads(0, 256)}
    assert found["target"].count_bytes(3) == 512 and found["drafter"].count_bytes(3) == 768
    assert WeightReads(100, 10).count_bytes(4) == 130


def test_a_text_that_is_no_program_is_refused() -> None:
    with pytest.raises(ValueError, match="no ENTRY"):
        parse_program("x = 1")


def test_a_program_compiled_here_is_read() -> None:
    def run(params: dict, x: jax.Array) -> jax.Array:
        def turn(carry: tuple) -> tuple:
            i, x = carry
            return i + 1, jnp.tanh(x @ params["model"]["kernel"])

        return jax.lax.while_loop(lambda carry: carry[0] < 5, turn, (0, x))[1]

    kernel = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    x = jax.ShapeDtypeStruct((4, 32), jnp.float32)
    compiled = jax.jit(run).lower({"model": {"kernel": kernel}}, x).compile()
    found = audit_program(compiled.as_text())
    assert found.weights == {"model": WeightReads(32 * 32 * 4, 0)}
    assert found.collectives == {} and found.loops == 0
    assert found.wide_products == 1


@pytest.mark.slow
def test_the_rounds_of_a_decode_are_found_beside_the_loop_that_reads_a_long_prompt() -> None:
    model = Causal(CausalConfig("llama", 20, 8, 16, 1, 2, 1, 4, 4096, rope=Rope(4)))
    generator = specjax.Generator(
        specjax.LoadedModel(model, model.init(jax.random.key(0))), max_prompt_tokens=2000
    )
    batch = generator.batch([[3] * (WHOLE_PROMPT + 1)], 1)
    lowered = generate.lower(*generator.arguments(batch, generator.keys(batch, 0)))
    program = parse_program(lowered.compile().as_text())
    assert len(program.loops(program.entry)) > 1
    rounds = program.callers[program.largest_loop(ROUNDS)].instruction
    assert rounds.op_name.endswith(f"/{ROUNDS}/while")
