"""Chat templates rendered as the trainers render them, in a box: no attribute tricks, bounded time, memory and output.

A template is code that came with a checkpoint. jinja2's immutable sandbox keeps it from Python's internals but not from
using up the machine, so every way to grow a value is bounded as well: loops and calls count against a budget and a deadline, and
operators, filters, concatenation and literals refuse results beyond a size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from jinja2 import Environment as JinjaEnvironment
from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from tuneclinic.probes.data.bounds import (
    ITEMS,
    NUMBER,
    TEXT_CHARS,
    Budget,
    Counted,
    Refused,
    Stopped,
    concatenated,
    first_of,
    formattable,
    joinable,
    joined,
    modest,
    most_of,
    printed,
    replaceable,
    small,
    weigh,
    weight_of,
)

SOURCE_CHARS = 1 << 16
"""The longest template that is compiled; the longest of the 35 in the corpus has 16,000 characters."""
TOKENS = 12_000
"""The most tokens of template syntax; the largest of the corpus has 2,500."""
DEPTH = 100
"""How deep a template's syntax tree may be; the deepest of the corpus' 35 is 21."""
LOOPS = 12
"""How many loops may stand inside each other; Python itself compiles no more than 20."""
FILTERS_LEFT_OUT = ("urlize", "wordwrap", "striptags", "xmlattr", "pprint", "random", "forceescape", "filesizeformat")
"""Filters that no chat template needs and whose cost cannot be told beforehand."""
METHODS_LEFT_OUT = frozenset({"expandtabs", "format_map", "to_bytes", "translate", "maketrans"})


class Generation(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks what the assistant said and renders as its body."""

    tags = {"generation"}

    def filter_stream(self, stream: Any) -> Iterator[Any]:
        """The template's tokens, counted: parsing takes time in proportion to them."""
        for number, token in enumerate(stream):
            if number > TOKENS:
                raise Stopped("the template is too long")
            yield token

    def parse(self, parser: Any) -> nodes.Node:
        """The body, in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class Bounded(NodeTransformer):
    """Sends loops, concatenation and literals through the environment's bounded filters."""

    def __init__(self) -> None:
        self.depth, self.loops = 0, 0

    def visit(self, node: nodes.Node, *arguments: Any, **named: Any) -> Any:
        """One node and all below it.

        Raises:
            Stopped: where the tree is too deep to be compiled in reasonable time.
        """
        self.depth += 1
        self.loops += isinstance(node, nodes.For)
        if self.depth > DEPTH or self.loops > LOOPS:
            raise Stopped("the template nests too deeply")
        result = super().visit(node, *arguments, **named)
        self.depth -= 1
        self.loops -= isinstance(node, nodes.For)
        return result

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - the visitor's own naming
        """Counts the turns of a loop."""
        self.generic_visit(node)
        node.iter = _filter(cast("nodes.Expr", node.iter), "counted_")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - the visitor's own naming
        """`a ~ b` as a bounded join."""
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "joined_")

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802 - the visitor's own naming
        """Weighs a list, so that lists of lists cannot double for ever."""
        self.generic_visit(node)
        return _filter(node, "weighed_")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802 - the visitor's own naming
        """Weighs a mapping."""
        self.generic_visit(node)
        return _filter(node, "weighed_")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802 - the visitor's own naming
        """Weighs a tuple that is a value; targets of assignments stay."""
        self.generic_visit(node)
        return _filter(node, "weighed_") if node.ctx == "load" else node


def _filter(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class Environment(ImmutableSandboxedEnvironment):
    """The trainers' settings of jinja2, with every growth bounded."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], finalize=printed)
        self.budget = Budget()
        self.concat = self._block  # type: ignore[method-assign]  # jinja2 has str.join here, compiled templates look it up
        self.known: dict[int, tuple[int, int]] = {}
        for name in FILTERS_LEFT_OUT:
            self.filters.pop(name, None)
        self.filters = {name: self._bounded(name, function) for name, function in self.filters.items()}
        self.filters.update(tojson=_tojson, weighed_=self.weigh, joined_=self._operands, counted_=self._counted)
        self.globals.pop("lipsum", None)
        self.globals.update(range=_range, raise_exception=_raise_exception, strftime_now=_strftime_now)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        return Bounded().visit(template)  # type: ignore[no-any-return]  # the visitor is untyped

    def weigh(self, value: Any) -> Any:
        """`value`, if it is no larger than a template may make it; counted where it is a text."""
        return self.budget.spend(weigh(value, self.known))

    def _block(self, pieces: Iterable[str]) -> str:
        """What the compiled template joins the output of macros and blocks with."""
        return self.budget.spend(joined(pieces))  # type: ignore[no-any-return]  # a text comes back as itself

    def _operands(self, values: list[Any]) -> str:
        """The operands of `~` as one text."""
        return self.budget.spend(concatenated(values))  # type: ignore[no-any-return]  # as above

    def _counted(self, inner: Any) -> Any:
        return inner if isinstance(inner, Undefined) else Counted(inner, self.budget)

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that counts as a step, takes no huge numbers and gives no huge value."""

        def bounded(*arguments: Any, **named: Any) -> Any:
            self.budget.step()
            modest(arguments, named)
            offset = 1 if arguments and isinstance(arguments[0], (Context, EvalContext, JinjaEnvironment)) else 0
            values = [list(first_of(value)) if isinstance(value, Iterator) else value for value in arguments[offset:]]
            self.weigh([value for value in values if not isinstance(value, Macro)])
            if name == "replace" and len(values) > 2:
                replaceable(*values[:3])
            elif (name == "format" and values) or (name == "attr" and values[1:] == ["format"]):
                formattable(values[0])
            elif name == "join" and values:
                values[0] = list(first_of(values[0]))
                joinable(values[0], *values[1:2])
            result = function(*arguments[:offset], *values, **named)
            return result if isinstance(result, Iterator) else self.weigh(result)

        for mark in ("jinja_pass_arg", "jinja_async_variant"):
            if hasattr(function, mark):
                setattr(bounded, mark, getattr(function, mark))
        return bounded

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """As the sandbox says, less the methods whose result cannot be bounded."""
        return attr not in METHODS_LEFT_OUT and super().is_safe_attribute(obj, attr, value)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """An attribute; `format` only of a string whose widths are bounded."""
        if isinstance(obj, str) and attribute == "format":
            formattable(obj)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An item, or an attribute where there is none."""
        if isinstance(obj, str) and argument == "format":
            formattable(obj)
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """An operator whose result may be large."""
        if operator == "*":
            for some, other in ((left, right), (right, left)):
                if isinstance(some, (str, list, tuple)) and isinstance(other, int) and len(some) * other > most_of(some):
                    raise Stopped("the template repeats a value too often")
        elif operator == "**" and not (small(left, 1 << 16) and small(right, 16)):
            raise Stopped("the template raises to too high a power")
        elif operator == "%" and isinstance(left, str):
            formattable(left)
            self.weigh(right)
        if isinstance(left, int) and isinstance(right, int) and max(abs(left), abs(right)) > NUMBER:
            raise Stopped("the template makes too large a number")
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, str):
            return self.weigh(result)
        return self.weigh(result) if isinstance(result, (list, tuple)) else result

    def call(self, context: Any, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """A call of a function, method or macro."""
        self.budget.step()
        modest(arguments, named)
        self.weigh([value for value in arguments if not isinstance(value, Macro)])
        self.weigh([value for value in named.values() if not isinstance(value, Macro)])
        name = getattr(function, "__name__", "")
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            if name == "replace" and len(arguments) > 1:
                replaceable(owner, *arguments[:2])
            elif name == "join" and arguments:
                held = list(first_of(arguments[0]))
                joinable(held, owner)
                arguments = (held, *arguments[1:])
        result = super().call(context, function, *arguments, **named)
        return self.weigh(result) if isinstance(result, (str, list, tuple, dict, Namespace)) else result


def _range(*bounds: int) -> range:
    held = range(*bounds)
    if len(held) > ITEMS:
        raise Stopped("the template counts too far")
    return held


def _raise_exception(message: Any = "") -> None:
    raise Refused(str(weigh(message))[:400])


def _strftime_now(pattern: str) -> str:
    from datetime import datetime  # noqa: PLC0415 - few templates print the date

    return datetime.now().astimezone().strftime(pattern[:100])


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    """JSON as the trainers' templates print it: not escaped for HTML."""
    weigh(value)
    if indent is not None and (not isinstance(indent, int) or indent > 16):
        raise Stopped("the template indents too far")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Renderer:
    """One chat template, compiled once.

    Raises:
        TemplateError: where the template cannot be compiled.
    """

    def __init__(self, source: str, tokens: Mapping[str, str | None]) -> None:
        if len(source) > SOURCE_CHARS:
            raise Stopped("the template is too long")
        self.environment = Environment()
        self.tokens = {name: token for name, token in tokens.items() if token is not None}
        try:
            self.template = self.environment.from_string(source)
        except TemplateError:
            raise
        except Exception as error:  # noqa: BLE001 - a hostile template breaks the compiler in ways of its own
            raise TemplateError(f"{type(error).__name__}: {error}"[:200]) from None

    def __call__(self, messages: Sequence[Mapping[str, Any]], *, generation: bool = False) -> str:
        """The text of a conversation.

        Raises:
            Refused: where the template calls `raise_exception`.
            TemplateError: where it fails, or was stopped.
        """
        self.environment.budget = Budget()
        self.environment.known = {id(value): weight_of(value, {}) for value in (*messages, messages)}
        names = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": generation, **self.tokens}
        context = self.template.new_context(names)
        try:
            return joined(self._pieces(context))
        except TemplateError:
            raise
        except Exception as error:  # noqa: BLE001 - a template may fail in any way
            raise TemplateError(f"{type(error).__name__}: {error}"[:200]) from None

    def _pieces(self, context: Any) -> Iterator[str]:
        size = 0
        for piece in self.template.root_render_func(context):
            self.environment.budget.step()
            size += len(piece)
            if size > TEXT_CHARS:
                raise Stopped("the template makes too much text")
            yield piece


@lru_cache(maxsize=8)
def renderer(source: str, tokens: tuple[tuple[str, str | None], ...]) -> Renderer:
    """A template compiled for given special tokens."""
    return Renderer(source, dict(tokens))
