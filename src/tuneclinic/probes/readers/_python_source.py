"""Python scripts and notebooks as a syntax tree, and the values that stand in them as literals. Nothing is executed."""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from tuneclinic.values import dataclass

SOURCE_BYTES = 1 << 20
"""The most of a script that is parsed: 25,000 lines."""
LINE = 5000
"""Characters of a line that are parsed: a longer one is embedded data, and a chain of operators on it could exhaust the stack."""
CUTS = 4
"""How often a script that does not parse is cut before the failing place and tried again."""
DEPTH = 30
"""How deep expressions are followed."""
BUDGET = 200_000
"""How many expressions are looked at in one script: `a1 = a0 * a0`, `a2 = a1 * a1` … would double without end."""


class _Unknown:
    """The value of an expression that the text alone does not give."""


UNKNOWN: Final = _Unknown()
_DTYPES = frozenset({"float16", "bfloat16", "float32", "float64", "half", "float", "float8_e4m3fn", "int8"})


@dataclass(slots=True)
class Source:
    """A parsed script: its tree, its lines, and for a notebook the line each cell starts at.

    `nodes` holds its assignments, calls, classes and imports in order of lines.
    """

    tree: ast.Module
    lines: list[str]
    name: str
    problem: str = ""
    cells: tuple[int, ...] = ()
    nodes: list[ast.AST] = field(default_factory=list)

    def where(self, line: int) -> str:
        """`train.py:41`, or `run.ipynb cell 3:7`."""
        if not self.cells:
            return f"{self.name}:{line}"
        cell = bisect_right(self.cells, line)
        return f"{self.name} cell {cell}:{line - self.cells[cell - 1] + 1}"

    def text(self, node: ast.AST) -> str:
        """A node of one line as it was written; "" for longer ones."""
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if first != last or not 0 < first <= len(self.lines):
            return ""
        line = self.lines[first - 1].encode()
        return line[node.col_offset : node.end_col_offset].decode(errors="replace")[:200]  # type: ignore[attr-defined] # expressions have both


def parse(text: str, name: str) -> Source | None:
    """The script's tree as far as it parses; None where no statement does."""
    return _parse(_lines(text[:SOURCE_BYTES]), name, ())


def parse_notebook(text: str, name: str) -> Source | None:
    """The code cells of a notebook, one after the other; None where there are none. Shell and magic lines are left out."""
    try:
        cells = json.loads(text).get("cells")
    except (ValueError, RecursionError, AttributeError):
        return None
    lines: list[str] = []
    starts: list[int] = []
    size = 0
    for cell in cells if isinstance(cells, list) else ():
        if not isinstance(cell, dict) or cell.get("cell_type") != "code" or size > SOURCE_BYTES:
            continue
        body = cell.get("source", "")
        body = "".join(map(str, body)) if isinstance(body, list) else str(body)
        cut = [re.sub(r"^\s*[%!?].*", "", line) for line in _lines(body)]
        if body.lstrip().startswith("%%") or not _parses("\n".join(cut)):
            cut = [""] * len(cut)
        starts.append(len(lines) + 1)
        lines.extend(cut)
        size += len(body)
    return _parse(lines, name, tuple(starts)) if starts else None


def _lines(text: str) -> list[str]:
    body = text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ")
    return ["" if len(line) > LINE else line for line in body.split("\n")]


def _parses(text: str) -> bool:
    return isinstance(_tree(text), ast.Module)


def _tree(text: str) -> ast.Module | tuple[int, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        return error.lineno or 0, str(error.msg)
    except (RecursionError, MemoryError, ValueError) as error:
        return 0, type(error).__name__


def _parse(lines: list[str], name: str, cells: tuple[int, ...]) -> Source | None:
    kept, problem = lines, ""
    for _ in range(CUTS):
        tree = _tree("\n".join(kept))
        if isinstance(tree, ast.Module):
            return Source(tree, lines, name, problem, cells, _telling(tree))
        line, message = tree
        problem = problem or f"line {line}: {message}"
        last = min(line, len(kept)) - 1 if line else 0
        while last > 0 and not re.match(r"[A-Za-z@]", kept[last]):
            last -= 1
        if last <= 0:
            return None
        kept = kept[:last]
    return None


_TELLING = (ast.Assign, ast.AnnAssign, ast.Call, ast.ClassDef, ast.Import, ast.ImportFrom)
_LEAVES = (ast.Constant, ast.Name, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)


def _telling(tree: ast.Module) -> list[ast.AST]:
    """The nodes that can set something. One walk for all readers of the tree, four times as fast as `ast.walk`."""
    found: list[ast.AST] = []
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, _TELLING):
            found.append(node)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                stack.extend(item for item in value if isinstance(item, ast.AST) and not isinstance(item, _LEAVES))
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                stack.append(value)
    found.sort(key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
    return found


@dataclass(slots=True)
class Names:
    """What names of a script are bound to: assignments by name in order of lines, and fields of argument classes."""

    assigned: dict[str, list[tuple[int, ast.expr]]] = field(default_factory=dict)
    fields: dict[str, ast.expr] = field(default_factory=dict)
    budget: int = BUDGET

    def value(self, node: ast.expr | None, depth: int = 0) -> Any:
        """The value of an expression of literals and simple names; UNKNOWN for anything else."""
        self.budget -= 1
        if node is None or depth > DEPTH or self.budget < 0:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, (str, int, float, bool, type(None))) else UNKNOWN
        if isinstance(node, ast.Name):
            return self._named(node, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, depth)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return self._sequence(node.elts, depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand, depth + 1)
            return -inner if isinstance(inner, (int, float)) else UNKNOWN
        if isinstance(node, ast.BinOp):
            return _arithmetic(node.op, self.value(node.left, depth + 1), self.value(node.right, depth + 1))
        if isinstance(node, ast.Subscript):
            return self._subscript(node, depth)
        return UNKNOWN

    def _named(self, node: ast.Name, depth: int) -> Any:
        bound = self.assigned.get(node.id, [])
        before = [value for line, value in bound if line <= node.lineno and value is not node]
        return self.value(before[-1], depth + 1) if before else UNKNOWN

    def _attribute(self, node: ast.Attribute, depth: int) -> Any:
        if isinstance(node.value, ast.Name):
            if node.value.id in {"torch", "jnp", "np", "mx"}:
                return node.attr if node.attr in _DTYPES else UNKNOWN
            if node.attr in self.fields:
                return self.value(self.fields[node.attr], depth + 1)
        return UNKNOWN

    def _sequence(self, elements: list[ast.expr], depth: int) -> Any:
        values = tuple(self.value(element, depth + 1) for element in elements[:1000])
        return UNKNOWN if any(value is UNKNOWN for value in values) else values

    def _subscript(self, node: ast.Subscript, depth: int) -> Any:
        key = self.value(node.slice, depth + 1)
        if not isinstance(node.value, ast.Name) or not isinstance(key, str):
            return UNKNOWN
        for _, bound in reversed(self.assigned.get(node.value.id, [])):
            for name, value in pairs(bound):
                if name == key:
                    return self.value(value, depth + 1)
        return UNKNOWN


def pairs(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Keys and values of a dictionary display or a `dict(…)` call."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=False):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, ast.Call) and symbol(node.func) in {"dict", "Namespace", "SimpleNamespace", "EasyDict"}:
        for keyword in node.keywords:
            if keyword.arg:
                yield keyword.arg, keyword.value


def symbol(node: ast.expr | None) -> str:
    """The dotted name an expression spells: `torch.optim.AdamW`; "" for what is no name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < DEPTH:
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    elif isinstance(node, ast.Call) and parts:
        parts.append("()")
    return ".".join(reversed(parts))


def _arithmetic(operator: ast.operator, left: Any, right: Any) -> Any:
    if not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
        return UNKNOWN
    if max(abs(left), abs(right)) > 1e15:
        return UNKNOWN
    try:
        if isinstance(operator, ast.Mult):
            return left * right
        if isinstance(operator, ast.Add):
            return left + right
        if isinstance(operator, ast.Sub):
            return left - right
        if isinstance(operator, ast.Div):
            return left / right
        if isinstance(operator, ast.FloorDiv):
            return left // right
        if isinstance(operator, ast.Pow) and abs(right) <= 30 and abs(left) <= 1000:
            power = left**right
            return UNKNOWN if isinstance(power, complex) else power
    except (ArithmeticError, ValueError):
        return UNKNOWN
    return UNKNOWN


def names_of(source: Source) -> Names:
    """All simple assignments, parameter defaults, dataclass fields and argparse options of a script."""
    names = Names()
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _bind(names, target, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            names.assigned.setdefault(node.target.id, []).append((node.lineno, node.value))
        elif isinstance(node, ast.ClassDef):
            for key, value, _ in fields_of(node):
                names.fields.setdefault(key, value)
        elif isinstance(node, ast.Call) and symbol(node.func).endswith("add_argument"):
            option = option_of(node)
            if option is not None:
                names.fields.setdefault(option[0], option[1])
    for bound in names.assigned.values():
        bound.sort(key=lambda pair: pair[0])
    return names


def _bind(names: Names, target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Name):
        names.assigned.setdefault(target.id, []).append((target.lineno, value))
    elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        for one, other in zip(target.elts, value.elts, strict=False):
            _bind(names, one, other)


def fields_of(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    """Fields with a literal default of a class of arguments: a dataclass, or one called …Config, …Arguments, CFG."""
    decorated = any(symbol(d.func if isinstance(d, ast.Call) else d).endswith("dataclass") for d in node.decorator_list)
    if not decorated and not re.search(r"(?i)config|args|arguments|param|cfg|settings", node.name):
        return
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
            yield statement.target.id, _default(statement.value), statement
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id, statement.value, statement


def _default(value: ast.expr) -> ast.expr:
    if isinstance(value, ast.Call) and symbol(value.func).endswith("field"):
        return next((keyword.value for keyword in value.keywords if keyword.arg == "default"), value)
    return value


def option_of(call: ast.Call) -> tuple[str, ast.expr] | None:
    """The name and default of an argparse option."""
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    words = [argument.value for argument in call.args if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]
    longest = max(words, key=len, default="")
    destination = named.get("dest")
    name = destination.value if isinstance(destination, ast.Constant) else longest.lstrip("-").replace("-", "_")
    default = named.get("default")
    action = named.get("action")
    if default is None and isinstance(action, ast.Constant) and action.value in {"store_true", "store_false"}:
        default = ast.copy_location(ast.Constant(action.value == "store_false"), call)
    return (str(name), default) if name and default is not None else None
