"""A script's syntax tree with the few questions that all checks ask of it. Nothing of the script is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeAlias

from tuneclinic.patterns import pattern

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
Loop: TypeAlias = "ast.For | ast.While | ast.AsyncFor"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
OPAQUE = (*FUNCTIONS, ast.ClassDef)
LOOPS = (ast.For, ast.While, ast.AsyncFor)
MODEL = pattern(r"(?:^|_)(?:model|net|network|engine|student|policy|actor|llm|lm)$", re.IGNORECASE)
"""How the trained model is called in scripts."""
FROZEN = pattern(r"ref|teacher|reward|frozen|vae|text_encoder|ema|judge|critic|old_|target_net|base_", re.IGNORECASE)
"""Other models that a training script holds and does not train."""
MOST_NODES = 60_000
"""Nodes of a tree that is examined: the longest training script measured (trl's GRPO trainer, 3,400 lines) has 13,000. A longer one
is not examined at all, since half a script shows nothing."""
MOST_BACKWARDS = 40
"""Calls of backward in a script that is examined: checks look at the whole loop of each. GAN trainers have four."""
MOST_LOOPS = 600
"""Loops in a script that is examined: the longest training scripts have a hundred."""


def dotted(node: ast.AST | None) -> str:
    """`a.b.c` of names and attributes; calls and subscripts on the way are passed over: `a().b[0].c` too is `a.b.c`."""
    parts: list[str] = []
    while node is not None:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Name):
            parts.append(node.id)
            break
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            break
    return ".".join(reversed(parts))


def last(node: ast.AST | None) -> str:
    """The last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def called(node: ast.AST) -> str:
    """The last part of the name that a call calls; "" for anything else."""
    return last(node.func) if isinstance(node, ast.Call) else ""


def receiver(node: ast.AST) -> str:
    """What a method is called on: `optimizer` of `optimizer.step()`."""
    return dotted(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument."""
    return next((item.value for item in call.keywords if item.arg == name), None)


def constant(node: ast.AST | None) -> object:
    """The value of a literal, a negative number included; `...` for what is none."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, (int, float)) else ...
    return ...


def names(node: ast.AST | None) -> set[str]:
    """Every plain name and attribute below a node."""
    found: set[str] = set()
    for child in ast.walk(node) if node is not None else ():
        if isinstance(child, ast.Name):
            found.add(child.id)
        elif isinstance(child, ast.Attribute):
            found.add(child.attr)
    return found


def targets(node: ast.AST) -> list[ast.expr]:
    """What an assignment assigns to, tuples taken apart."""
    if isinstance(node, ast.Assign):
        given = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        given = [node.target]
    else:
        return []
    flat: list[ast.expr] = []
    for target in given:
        flat.extend(target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])
    return flat


def _children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below, without contexts and operators, which are a third of a tree and are asked for by their parent."""
    found: list[ast.AST] = []
    for name in node._fields:
        if name in {"ctx", "op", "ops"}:
            continue
        value = getattr(node, name, None)
        if isinstance(value, list):
            found.extend(item for item in value if isinstance(item, ast.AST))
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


class Source:
    """One parsed script: the tree with parents, calls by name, and one level of its own functions."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.tree = tree
        self.lines = text.split("\n")
        self.nodes: list[ast.AST] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        self._children: dict[ast.AST, list[ast.AST]] = {}
        stack: list[ast.AST] = [tree]
        while stack and len(self.nodes) < MOST_NODES:
            node = stack.pop()
            self.nodes.append(node)
            children = _children(node)
            if children:
                self._children[node] = children
                for child in children:
                    self.parents[child] = node
                stack.extend(reversed(children))
        self.whole = not stack and self._reasonable()

    def _reasonable(self) -> bool:
        """Whether the script repeats itself no more than a person's script does; checks are made loop by loop."""
        loops = sum(isinstance(node, LOOPS) for node in self.nodes)
        backwards = sum(isinstance(node, ast.Call) and called(node) in {"backward", "manual_backward"} for node in self.nodes)
        return loops <= MOST_LOOPS and backwards <= MOST_BACKWARDS

    @cached_property
    def calls(self) -> dict[str, list[ast.Call]]:
        """All calls by the last part of their name, in order of the text."""
        found: dict[str, list[ast.Call]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Call):
                found.setdefault(called(node), []).append(node)
        return found

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The script's own functions and methods by name; of two with one name the first."""
        found: dict[str, Function] = {}
        for node in self.nodes:
            if isinstance(node, FUNCTIONS):
                found.setdefault(node.name, node)
        return found

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """The script's own classes."""
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def words(self) -> set[str]:
        """Every name and attribute that occurs."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                found.update(part for alias in node.names for part in alias.name.split("."))
                found.update((getattr(node, "module", None) or "").split("."))
        return found

    @cached_property
    def assignments(self) -> dict[str, list[ast.Assign | ast.AnnAssign]]:
        """Assignments by the plain or dotted name they assign to."""
        found: dict[str, list[ast.Assign | ast.AnnAssign]] = {}
        for node in self.nodes:
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                for target in targets(node):
                    found.setdefault(dotted(target), []).append(node)
        return found

    def call(self, *wanted: str) -> list[ast.Call]:
        """All calls of any of these names."""
        return [call for name in wanted for call in self.calls.get(name, ())]

    def up(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, the nearest first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def function(self, node: ast.AST) -> Function | ast.Module:
        """The function around a node, or the module."""
        return next((parent for parent in self.up(node) if isinstance(parent, FUNCTIONS)), self.tree)

    def loops(self, node: ast.AST) -> list[Loop]:
        """The loops around a node within its function, the innermost first."""
        found: list[Loop] = []
        for parent in self.up(node):
            if isinstance(parent, FUNCTIONS):
                break
            if isinstance(parent, LOOPS):
                found.append(parent)
        return found

    def callers(self, function: ast.AST) -> list[ast.Call]:
        """The calls of one of the script's own functions."""
        return self.call(function.name) if isinstance(function, FUNCTIONS) else []

    def inside(self, node: ast.AST) -> Iterator[ast.AST]:
        """Everything below a node, without the bodies of functions defined in it; of a function, its own body."""
        children = self._children
        stack: list[ast.AST] = list(children.get(node, ()))
        while stack:
            child = stack.pop()
            yield child
            if child in children and not isinstance(child, OPAQUE):
                stack.extend(children[child])

    def scope(self, node: ast.AST) -> list[ast.AST]:
        """Everything below a node, and the bodies of the script's own functions called there, one level deep."""
        own = list(self.inside(node))
        seen = {node}
        for child in list(own):
            function = self.functions.get(called(child)) if isinstance(child, ast.Call) else None
            if function is not None and function not in seen and self.function(child) is not function:
                seen.add(function)
                own.extend(self.inside(function))
        return own

    def conditional(self, node: ast.AST, within: ast.AST) -> bool:
        """Whether an `if` (or a conditional expression) stands between a node and `within`."""
        for parent in self.up(node):
            if parent is within:
                return False
            if isinstance(parent, (ast.If, ast.IfExp, ast.BoolOp, ast.ExceptHandler)):
                return True
        return False

    @cached_property
    def backwards(self) -> list[ast.Call]:
        """Calls of `backward`: the loss's own, an accelerator's, an engine's."""
        return [
            call
            for call in self.call("backward", "manual_backward")
            if isinstance(call.func, ast.Attribute) and not self._defines_backward(call)
        ]

    def _defines_backward(self, call: ast.Call) -> bool:
        function = self.function(call)
        return isinstance(function, FUNCTIONS) and function.name == "backward"

    @cached_property
    def step_loops(self) -> list[tuple[Loop, ast.Call]]:
        """Each loop that runs the training steps, with its backward call, followed one function up where needed."""
        found: list[tuple[Loop, ast.Call]] = []
        for backward in self.backwards:
            around = self.loops(backward)
            if around:
                found.append((around[0], backward))
                continue
            found.extend(
                (loops[0], backward) for caller in self.callers(self.function(backward)) if (loops := self.loops(caller))
            )
        return found

    def outer_loops(self, backward: ast.Call) -> list[Loop]:
        """The outermost loops around a backward call: in its own function, and around the calls of that function."""
        loops = self.loops(backward)[-1:]
        for caller in self.callers(self.function(backward)):
            loops.extend(self.loops(caller)[-1:])
        return loops

    @cached_property
    def trains(self) -> bool:
        """Whether the script trains something: a backward call or a Trainer."""
        return bool(self.backwards) or any(name.endswith("Trainer") for name in self.calls)

    def is_model_call(self, node: ast.AST) -> bool:
        """Whether a node calls the trained model: `model(...)`, `self.model(...)`, `outputs = net(x)`."""
        if not isinstance(node, ast.Call):
            return False
        name = last(node.func)
        return MODEL.search(name) is not None and FROZEN.search(dotted(node.func)) is None and name not in self.functions

    def without_grad(self, node: ast.AST) -> bool:
        """Whether a node runs where no gradient is kept: in a `with`, under a decorator, or where its function's callers are."""
        function = self.function(node)
        around = [parent for parent in self.up(node) if isinstance(parent, (ast.With, ast.AsyncWith))]
        if any(_no_grad(item.context_expr) for block in around for item in block.items):
            return True
        if isinstance(function, FUNCTIONS):
            if any(_no_grad(decorator) for decorator in function.decorator_list):
                return True
            return bool(self.callers(function)) and all(self._called_without_grad(caller) for caller in self.callers(function))
        return False

    def _called_without_grad(self, call: ast.Call) -> bool:
        function = self.function(call)
        if isinstance(function, FUNCTIONS) and any(_no_grad(decorator) for decorator in function.decorator_list):
            return True
        return any(
            _no_grad(item.context_expr) for parent in self.up(call) if isinstance(parent, ast.With) for item in parent.items
        )

    def value(self, node: ast.AST | None) -> ast.AST | None:
        """A node, or what the name it is was assigned last above it."""
        if isinstance(node, ast.Name):
            given = [item for item in self.assignments.get(node.id, ()) if item.lineno <= node.lineno and len(targets(item)) == 1]
            if given:
                return given[-1].value
        return node


def _no_grad(node: ast.AST) -> bool:
    name = last(node.func) if isinstance(node, ast.Call) else last(node)
    return name in {"no_grad", "inference_mode", "set_grad_enabled"}


def mentions(nodes: Iterable[ast.AST], *wanted: str) -> bool:
    """Whether any node is a name or an attribute of these."""
    return any(
        (isinstance(node, ast.Name) and node.id in wanted) or (isinstance(node, ast.Attribute) and node.attr in wanted)
        for node in nodes
    )
