"""Programs as text that does not tell how their Python functions, files and values are called.

A text is that of StableHLO, as `jax.stages.Lowered.as_text()` gives it. What is left of it are
operations in their order, with types, constants and attributes.
"""

from __future__ import annotations

import collections
import hashlib
import re

_STRING = r'"(?:[^"\\]|\\.)*"'
_SYMBOL = rf"@(?:{_STRING}|[\w$.-]+)"
_LOCATION = re.compile(rf" loc\((?:[^()\"]|{_STRING}|\((?:[^()\"]|{_STRING})*\))*\)")
_LOCATION_LINE = re.compile(r"^#loc.*\n?", re.MULTILINE)
_PATH = re.compile(rf"jax\.(?:result_info|arg_info) = {_STRING}(?:, )?")
_LAST_COMMA = re.compile(r", \}")
_EMPTY = re.compile(r" \{\}(?=[,)\s])")
_MODULE = re.compile(rf"^module {_SYMBOL}", re.MULTILINE)
_FUNCTION = re.compile(rf"^ *func\.func (?:public |private )?({_SYMBOL})", re.MULTILINE)
_VALUE = re.compile(r"%[\w$.-]+")
_RESULTS = re.compile(r" *%[\w$.-]+(?::\d+)?(?:, %[\w$.-]+(?::\d+)?)* = ")
_DEFINED = re.compile(r" = |: ")
_OPERATION = re.compile(r'^ *(?:%[^=]*= )?"?((?:[a-z_]+\.)?[a-z_0-9]+)"?[ ({]', re.MULTILINE)
_APPLIED = re.compile(r" applies stablehlo\.(\w+)")
_NOT_COUNTED = ("cond", "func", "module", "reducer", "return", "stablehlo.return")


def normalize(text: str) -> str:
    """The program under names that only say the order in which things come.

    Functions come in the order in which they are called first, equal ones once, and those that
    nothing calls not at all.

    Raises:
      ValueError: when there is no function `main`.
    """
    text = _LOCATION_LINE.sub("", _LOCATION.sub("", text))
    text = _EMPTY.sub("", _LAST_COMMA.sub("}", _PATH.sub("", text)))
    head, functions = _functions(_MODULE.sub("module", text))
    if "@main" not in functions:
        raise ValueError("the program has no function @main")
    kept, digests = _merge_functions(functions)
    order = {digests["@main"]: 0}
    made, waiting = [], [digests["@main"]]
    while waiting:
        body = kept[waiting.pop(0)]
        for digest in re.findall(r"@<(\w+)>", body):
            if digest not in order:
                order[digest] = len(order)
                waiting.append(digest)
        made.append(re.sub(r"@<(\w+)>", lambda found: f"@f{order[found[1]]}", body))
    return head + "".join(f"func @f{place}{body}\n" for place, body in enumerate(made)) + "}\n"


def _functions(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the functions, and they by name, their values numbered."""
    found = list(_FUNCTION.finditer(text))
    ends = [*(one.start() for one in found[1:]), len(text.rstrip().removesuffix("}"))]
    bodies = {
        one[1]: _number_values(text[one.end() : end].rstrip())
        for one, end in zip(found, ends, strict=True)
    }
    return text[: found[0].start()] if found else text, bodies


def _merge_functions(functions: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Functions by a digest of themselves and of all that they call, and digests by name."""
    kept: dict[str, str] = {}
    digests: dict[str, str] = {}

    def digest_of(name: str) -> str:
        if name not in digests:
            body = re.sub(_SYMBOL, called, functions[name])
            digests[name] = sha256(body)
            kept[digests[name]] = body
        return digests[name]

    def called(found: re.Match[str]) -> str:
        return f"@<{digest_of(found[0])}>" if found[0] in functions else found[0]

    for name in functions:
        digest_of(name)
    return kept, digests


def _number_values(body: str) -> str:
    """A function with its values numbered in the order of their definitions.

    Regions beside each other may use a name twice: the last definition counts.
    """
    names: dict[str, str] = {}
    count = 0

    def line_of(line: str) -> str:
        results = _RESULTS.match(line)
        end = results.end() if results else 0

        def renamed(found: re.Match[str]) -> str:
            nonlocal count
            if found.start() < end or _DEFINED.match(line, found.end()):
                names[found[0]] = f"%{count}"
                count += 1
            return names.get(found[0], found[0])

        return _VALUE.sub(renamed, line)

    return "\n".join(map(line_of, body.splitlines()))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def operations(text: str) -> dict[str, int]:
    """How many operations of each kind a normalized text has, the most frequent first."""
    kinds = collections.Counter(
        name for name in _OPERATION.findall(text) if name not in _NOT_COUNTED
    )
    kinds.update(f"stablehlo.reduce of {name}" for name in _APPLIED.findall(text))
    kinds["stablehlo.reduce"] -= len(_APPLIED.findall(text))
    kinds["call"] += kinds.pop("func.call", 0)
    ordered = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    return {name.removeprefix("stablehlo."): count for name, count in ordered if count}
