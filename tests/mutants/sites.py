"""Every small change of the product that a test has to notice.

Four operators: ``flip`` a comparison or a truth value, ``drop`` a statement, an operand, a keyword
or an element, ``swap`` arguments or branches, change a ``constant``. Left alone is what no law is
about: annotations, docstrings, lines of the log, texts for people (what has a space in it), and the
options of classes and decorators.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.mutants.copies import ROOT

__all__ = ["Site", "blocks", "defined", "equivalent", "every_site", "modules", "sites", "sites_of"]

_EQUIVALENT = Path(__file__).with_name("equivalent.txt")
_PACKAGES = ("filters", "lean_sandbox")
"""What is changed, but for the rooms that serve tests and demonstrations."""
_LEFT_OUT = (
    "lean_sandbox/local/",
    "lean_sandbox/bench/",
    "lean_sandbox/client.py",
    "lean_sandbox/demo/",
)
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
_WRAPPERS = {"sorted", "list", "tuple", "set", "bool", "int", "float", "str", "abs"}
_LOGS = {"log", "_log", "logger"}
_TYPES = {"TypeVar", "NewType", "cast", "ParamSpec"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Site:
    """One change of one place."""

    path: str
    #: The functions and classes around it, by their names.
    scope: str
    #: What is run together with it: ``path:scope:number``; "" outside of functions.
    block: str
    line: int
    operator: str
    old: str
    new: str
    #: Bytes of the source.
    start: int
    end: int
    #: Outside of functions: what the statement around it defines.
    defines: tuple[str, ...] = ()
    #: Whether it is part of a pattern of a ``match``, which cannot be computed.
    is_pattern: bool = False
    #: Which of several that read the same.
    number: int = 0

    @property
    def name(self) -> str:
        """What it is called in lists: stays when lines around it come and go."""
        again = f" ({self.number + 1})" if self.number else ""
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        where = ".".join(part for part in (self.scope, *self.defines) if part) or "module"
        return f"{self.path} {where}: {self.operator} {old} => {new}{again}"

    def apply(self, source: bytes) -> bytes:
        """Return the source with this change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def modules(root: Path) -> list[str]:
    """Return the modules that are changed, as paths below a root."""
    found = (
        one.relative_to(root).as_posix()
        for name in _PACKAGES
        for one in (root / name).rglob("*.py")
    )
    return sorted(one for one in found if not one.startswith(_LEFT_OUT))


def every_site() -> list[Site]:
    """Return all changes of the product."""
    return [site for path in modules(ROOT) for site in sites_of(path)]


def sites_of(name: str) -> list[Site]:
    """Return the changes of a module, given its path or the name of one of them."""
    path = name.partition(" ")[0]
    return sites(path, (ROOT / path).read_text("utf-8"))


def equivalent() -> set[str]:
    """Return the names of the changes that nothing can notice, from the list of them."""
    lines = _EQUIVALENT.read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith((" ", "#"))}


def blocks(path: str, tree: ast.Module) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Give the statements of functions that are run together, each list with a name."""
    counts: Counter[str] = Counter()

    def below(node: ast.AST, scope: str, *, is_run: bool) -> Iterator[tuple[str, list[ast.stmt]]]:
        if isinstance(node, Function | ast.ClassDef):
            scope = f"{scope}.{node.name}".lstrip(".")
            is_run = isinstance(node, Function)
        for field in ("body", "orelse", "finalbody"):
            some = getattr(node, field, None)
            if is_run and isinstance(some, list) and some and isinstance(some[0], ast.stmt):
                yield f"{path}:{scope}:{counts[scope]}", some
                counts[scope] += 1
        for child in ast.iter_child_nodes(node):
            yield from below(child, scope, is_run=is_run)

    yield from below(tree, "", is_run=False)


def sites(path: str, source: str) -> list[Site]:
    """Return every change of a module, in the order of its lines."""
    tree = ast.parse(source)
    finder = _Finder(path, source, {id(some): name for name, some in blocks(path, tree)})
    finder.visit(tree)
    seen: Counter[str] = Counter()
    numbered = []
    for one in sorted(
        finder.found, key=lambda site: (site.start, site.end, site.operator, site.new)
    ):
        numbered.append(replace(one, number=seen[one.name]))
        seen[one.name] += 1
    return numbered


class _Finder(ast.NodeVisitor):
    """Walks a module, and knows the function and the block that it is in."""

    def __init__(self, path: str, source: str, names: dict[int, str]) -> None:
        self.found: list[Site] = []
        self._path = path
        self._data = source.encode()
        starts = [0]
        for line in self._data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts
        self._names = names
        self._scope = ""
        self._block = ""
        self._defines: tuple[str, ...] = ()
        self._is_pattern = False

    def _add(self, operator: str, node: ast.expr | ast.stmt, new: str | ast.AST) -> None:
        start = self._starts[node.lineno - 1] + node.col_offset
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        text = new if isinstance(new, str) else ast.unparse(new)
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
            text = f"({text})"
        old = self._data[start:end].decode()
        defines = () if self._block else self._defines
        place = self._path, self._scope, self._block, node.lineno
        site = Site(*place, operator, old, text, start, end, defines)
        self.found.append(replace(site, is_pattern=self._is_pattern))

    # What is left alone, and what is around a place.

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.Expr) and (
            isinstance(node.value, ast.Constant) or _is_log(node.value)
        ):
            return
        if not self._block and (names := defined(node)):
            self._defines = names
        was_pattern = self._is_pattern
        self._is_pattern = was_pattern or isinstance(node, ast.pattern)
        super().visit(node)
        self._is_pattern = was_pattern

    def generic_visit(self, node: ast.AST) -> None:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params", "bases"):
                continue
            if field == "keywords" and isinstance(node, ast.ClassDef):
                continue
            block = self._block
            if isinstance(value, list):
                self._block = self._names.get(id(value), block)
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    self.visit(one)
            self._block = block

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._inside(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._inside(node)

    def _inside(self, node: ast.ClassDef | Function) -> None:
        scope = self._scope
        block = self._block
        self._scope = f"{self._scope}.{node.name}".lstrip(".")
        if isinstance(node, Function):
            self._block = self._names[id(node.body)]
        self.generic_visit(node)
        self._scope = scope
        self._block = block

    # Statements.

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self._add("drop", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(one, ast.Name) and one.id.startswith("__") for one in node.targets):
            return
        if all(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets):
            self._add("drop", node, "pass")
        self.generic_visit(node)

    def _dropped(self, node: ast.stmt) -> None:
        self._add("drop", node, "pass")
        self.generic_visit(node)

    visit_AugAssign = visit_Delete = visit_Raise = visit_Continue = visit_Break = _dropped

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._add("drop", node, "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if node.orelse:
            self._add("swap", node.test, _negated(node.test))
        else:
            self._add("drop", node.test, "False")
            self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        """Flip a condition that no other change flips."""
        if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant):
            self._add("flip", test, _negated(test))

    # Expressions.

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, one in enumerate(node.ops):
            if other := _OPPOSITES.get(type(one)):
                changed = copy.deepcopy(node)
                changed.ops[index] = other()
                self._add("flip", node, changed)
        self.generic_visit(node)
        for side in node.comparators:
            if isinstance(side, ast.Tuple):
                self._elements(side)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add("flip", node, ast.BoolOp(other, node.values))
        for index in range(len(node.values)):
            rest = node.values[:index] + node.values[index + 1 :]
            self._add("drop", node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add("flip", node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if other := _ARITHMETIC.get(type(node.op)):
            self._add("swap", node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add("swap", node, ast.IfExp(node.test, node.orelse, node.body))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _TYPES or _is_log(node):
            return
        plain = not any(isinstance(one, ast.Starred) for one in node.args)
        if len(node.args) >= 2 and plain and name not in ("isinstance", "min", "max"):
            first, second, *rest = node.args
            self._add("swap", node, ast.Call(node.func, [second, first, *rest], node.keywords))
        if name in ("min", "max"):
            other = ast.Name("max" if name == "min" else "min")
            self._add("swap", node, ast.Call(other, node.args, node.keywords))
        if name in _WRAPPERS and len(node.args) == 1 and plain and not node.keywords:
            self._add("drop", node, node.args[0])
        if name == "zip":
            # That lists are of one length is asserted, not decided.
            for one in node.args:
                self.visit(one)
            return
        for index, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                rest_ = node.keywords[:index] + node.keywords[index + 1 :]
                self._add("drop", node, ast.Call(node.func, node.args, rest_))
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for one in node.ifs:
            self._add("drop", one, "True")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        part = node.slice
        if isinstance(part, ast.Slice) and isinstance(node.ctx, ast.Load):
            if part.upper is not None:
                self._add(
                    "drop", node, ast.Subscript(node.value, ast.Slice(part.lower, None, part.step))
                )
            if part.lower is not None:
                self._add(
                    "drop", node, ast.Subscript(node.value, ast.Slice(None, part.upper, part.step))
                )
        self.generic_visit(node)

    def _elements(self, node: ast.List | ast.Set | ast.Tuple) -> None:
        if len(node.elts) < 2 or (
            not isinstance(node, ast.Set) and not isinstance(node.ctx, ast.Load)
        ):
            return
        for index in range(len(node.elts)):
            rest = node.elts[:index] + node.elts[index + 1 :]
            self._add("drop", node, type(node)(elts=rest))

    def _literal(self, node: ast.List | ast.Set) -> None:
        self._elements(node)
        self.generic_visit(node)

    visit_List = visit_Set = _literal

    def visit_Dict(self, node: ast.Dict) -> None:
        for index in range(len(node.keys)):
            keys = node.keys[:index] + node.keys[index + 1 :]
            values = node.values[:index] + node.values[index + 1 :]
            self._add("drop", node, ast.Dict(keys, values))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add("flip", node, repr(not value))
        elif isinstance(value, int):
            self._add("constant", node, repr(value + 1))
        elif isinstance(value, float):
            self._add("constant", node, repr(value * 2 or 1.0))
        elif isinstance(value, str) and " " not in value:
            self._add("constant", node, repr(f"{value}~"))
        elif isinstance(value, bytes) and b" " not in value:
            self._add("constant", node, repr(value + b"~"))


def defined(node: ast.AST) -> tuple[str, ...]:
    """Return the names that a statement of a module or class defines."""
    if isinstance(node, ast.ClassDef | Function):
        return (node.name,)
    if isinstance(node, ast.Assign):
        return tuple(one.id for one in node.targets if isinstance(one, ast.Name))
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return (node.target.id,)
    return ()


def _negated(test: ast.expr) -> ast.expr:
    return test.operand if isinstance(test, ast.UnaryOp) else ast.UnaryOp(ast.Not(), test)


def _is_log(node: ast.expr) -> bool:
    """Return whether this is a line of the log."""
    if isinstance(node, ast.Await):
        node = node.value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    return getattr(owner, "attr", getattr(owner, "id", "")) in _LOGS
