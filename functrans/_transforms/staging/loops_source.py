"""Functions rewritten, so that their loops can be staged: loops and branches become calls.

    for i in range(n):                 def body(item, s):
        s = s + x[i]           ->          i = item; s = hooks.value(s + x[i]); return (i, s)
                                       i, s = hooks.for_(range(n), body, (i, s), names)

The source is parsed again and compared with the code that runs: one that does not give it is not
used. Lines stay, globals and cells are the function's own. What the hooks do is in ``loops.py``;
where no loop is being staged they do what Python does.
"""

from __future__ import annotations

import ast
import copy
import linecache
import weakref
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

HOOKS = "_ft_hooks"
_FUTURE = 0x1FF0000  # flags of code that say what it imports from __future__
_NESTED = 0x10
# Names of what looks at the frame that calls it.
_OF_FRAMES = frozenset({"super", "locals", "vars", "eval", "exec", "dir", "_getframe", "__class__"})
_SCOPES = (ast.FunctionDef, ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
_NOT_HERE = (ast.ClassDef, ast.AsyncFunctionDef, ast.Yield, ast.YieldFrom, ast.Await, ast.Match)
# What does something to Python's own objects, or decides what is done next in another way.
_EFFECTS = (ast.Delete, ast.With, ast.Try, ast.Raise, ast.Import, ast.ImportFrom, ast.FunctionDef,
            ast.Global, ast.Nonlocal)


class LoopName(NamedTuple):
    """A name that a body assigns.

    ``carried``: a pass may read what the one before left; ``live``: it is read outside of the loop;
    ``added``: it is assigned by ``+=`` and the like alone; ``step``: of an integer, by that.
    """

    name: str
    carried: bool
    live: bool
    added: bool
    step: int | None


class Refused(Exception):
    """A function that is not rewritten."""


# ---- Code

_known: dict[tuple[int, int], tuple[weakref.ref[CodeType], CodeType | str]] = {}


def rewritten_code(f: FunctionType, depth: int = 0) -> CodeType | str:
    """The code of the function with hooks, or why there is none.

    With ``depth`` 1 it is for calls from loops that are staged: hooks are at all that it does.
    """
    code = f.__code__
    key = id(code), depth
    ref, known = _known.get(key, (None, ""))
    if ref is None or ref() is not code:
        try:
            known = _rewrite(code, depth)
        except Refused as why:
            known = str(why)
        except (SyntaxError, RecursionError, ValueError) as why:
            known = f"its source cannot be read: {why}"
        _known[key] = weakref.ref(code, lambda _: _known.pop(key, None)), known
    return known


def _rewrite(code: CodeType, depth: int) -> CodeType:
    tree = _parse("".join(linecache.getlines(code.co_filename)))
    imports = _imports(tree)
    for node in _nodes(tree, code):
        if _alike(_compile(copy.deepcopy(node), code, imports), code):
            break
    else:
        raise Refused("its source is not there")
    if any([isinstance(n, _NOT_HERE) for n in ast.walk(node)]):
        raise Refused("it is a generator, or has classes or `match` in it")
    named = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    named |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    if found := _OF_FRAMES & named:
        raise Refused(f"it uses `{min(found)}`")
    node = copy.deepcopy(node)
    _Rewriter(node, depth).change_function()
    return _compile(node, code, imports, HOOKS)


def _imports(tree: ast.Module) -> list[ast.stmt]:
    """What a module imports: methods of these names are called by other code."""
    return [n for n in _own(tree.body) if isinstance(n, ast.Import) or (
        isinstance(n, ast.ImportFrom) and n.module != "__future__")]


def _nodes(tree: ast.Module, code: CodeType) -> Iterator[ast.FunctionDef | ast.Lambda]:
    """The functions that begin in the line where the code does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>":
            first = node.lineno
        else:
            continue
        if first == code.co_firstlineno:
            yield node


_texts: dict[str, ast.Module] = {}


def _parse(text: str) -> ast.Module:
    if text not in _texts:
        while len(_texts) >= 4:
            del _texts[next(iter(_texts))]
        _texts[text] = ast.parse(text)
    return _texts[text]


def _compile(node: Any, code: CodeType, imports: list[ast.stmt], *more: str) -> CodeType:
    """The code of a function whose free variables are those of ``code`` and ``more``."""
    node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
    node.args.kw_defaults = [d and ast.Constant(None) for d in node.args.kw_defaults]
    for a in _parameters(node.args):
        a.annotation = None
    if isinstance(node, ast.FunctionDef):
        node.decorator_list, node.returns = [], None
    body: Any = ast.Expr(node) if isinstance(node, ast.Lambda) else node
    outer = _function("_outer", [*code.co_freevars, *more], [body])
    module = ast.Module([*imports, outer], [])
    ast.copy_location(outer, node)
    ast.copy_location(body, node)
    ast.fix_missing_locations(module)
    made: Any = compile(module, code.co_filename, "exec", code.co_flags & _FUTURE, True)
    for name in ("_outer", code.co_name):
        made = next(c for c in made.co_consts if type(c) is CodeType and c.co_name == name)
    return _rename_parts(made, code.co_name) if more else made


def _rename_parts(code: CodeType, name: str) -> CodeType:
    """The code, whose parts have the name of the function that they are of, as tracebacks show."""
    own = name if code.co_name.startswith("_ft_") else code.co_name
    consts = [_rename_parts(c, own) if type(c) is CodeType else c for c in code.co_consts]
    return code.replace(co_name=own, co_consts=tuple(consts))


def _parameters(args: ast.arguments) -> list[ast.arg]:
    rest = [a for a in (args.vararg, args.kwarg) if a is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *rest]


def _alike(a: CodeType, b: CodeType) -> bool:
    """Whether two pieces of code do the same."""
    same = ("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars",
            "co_argcount", "co_posonlyargcount", "co_kwonlyargcount")
    if any([getattr(a, s) != getattr(b, s) for s in same]) or (
            (a.co_flags ^ b.co_flags) & ~_NESTED) or len(a.co_consts) != len(b.co_consts):
        return False
    return all([
        type(x) is type(y) and (_alike(x, y) if type(x) is CodeType else repr(x) == repr(y))
        for x, y in zip(a.co_consts, b.co_consts, strict=True)
    ])


# ---- What names stand for


def _own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes, but those in scopes inside, which are given themselves."""
    todo = list(nodes)
    while todo:
        n = todo.pop()
        yield n
        if not isinstance(n, _SCOPES):
            todo += ast.iter_child_nodes(n)
        elif not isinstance(n, ast.FunctionDef | ast.Lambda):
            # an assignment in a comprehension is to the function's own name
            todo += [x for x in ast.walk(n) if isinstance(x, ast.NamedExpr)]


def _assignments(body: Sequence[ast.stmt], target: Sequence[ast.AST] = ()) -> dict[str, bool]:
    """The names that statements assign, and whether by ``+=`` alone."""
    found: dict[str, bool] = {}
    added = {id(n.target) for n in _own(body) if isinstance(n, ast.AugAssign)}
    for n in _own([*target, *body]):
        names = []
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load):
            names = [n.id]
        elif isinstance(n, ast.FunctionDef):
            names = [n.name]
        elif isinstance(n, ast.ExceptHandler):
            names = [n.name] if n.name else []
        elif isinstance(n, ast.Import | ast.ImportFrom):
            names = [a.asname or a.name.partition(".")[0] for a in n.names]
        for name in names:
            found[name] = found.get(name, True) and id(n) in added
    return found


def _mentions(nodes: Iterable[ast.AST], name: str) -> bool:
    return any([isinstance(x, ast.Name) and x.id == name for n in nodes for x in ast.walk(n)])


def _free(scope: Any) -> set[str]:
    """The names in a scope inside a function that may be the function's own."""
    named = {n.id for n in ast.walk(scope) if isinstance(n, ast.Name)}
    if isinstance(scope, ast.GeneratorExp):
        return named
    own = {a.arg for a in _parameters(scope.args)}
    if isinstance(scope, ast.FunctionDef):
        outer = {name for n in ast.walk(scope) if isinstance(n, ast.Nonlocal | ast.Global)
                 for name in n.names}
        own |= _assignments(scope.body).keys() - outer
        named |= outer
    # what the scope inside of it has by these names may be mine
    inside = [n for n in ast.walk(scope) if isinstance(n, _SCOPES) and n is not scope]
    defaults = {n.id for d in (*scope.args.defaults, *scope.args.kw_defaults) if d is not None
                for n in ast.walk(d) if isinstance(n, ast.Name)}
    return (named - own) | defaults if not inside else named | defaults


def _begins(body: Sequence[ast.stmt], name: str) -> str:
    """Whether a name is "read" first, "written" first, "perhaps" written, or none of these."""
    state = ""
    for k, s in enumerate(body):
        if not _mentions([s], name):
            continue
        later = _mentions(body[k + 1 :], name)
        if isinstance(s, ast.Assign):
            plain = all([isinstance(t, ast.Name | ast.Tuple) for t in s.targets])
            read = _mentions([s.value], name) or not plain or any(
                [isinstance(x, ast.Name) and x.id == name and isinstance(x.ctx, ast.Load)
                 for t in s.targets for x in ast.walk(t)])
            return "read" if read else "written"
        if isinstance(s, ast.For) and not s.orelse:
            own = _mentions([s.target], name)
            if _mentions([s.iter], name) or later or (not own and _begins(s.body, name) == "read"):
                return "read"
            state = "perhaps"
            continue
        if isinstance(s, ast.If) and not _mentions([s.test], name):
            ways = [_begins(s.body, name), _begins(s.orelse, name)]
            if "read" in ways:
                return "read"
            if ways == ["written"] * 2:
                return "written"
            state = "perhaps"
            continue
        return "read"
    return state


def _step(body: Sequence[ast.stmt], name: str) -> int | None:
    """What a name goes up by in a pass, if it is assigned once and by such a statement."""
    stores = [n for n in _own(body) if isinstance(n, ast.Name) and n.id == name
              and not isinstance(n.ctx, ast.Load)]
    for s in body:
        if isinstance(s, ast.AugAssign) and len(stores) == 1 and s.target is stores[0]:
            by, op = s.value, s.op
        elif isinstance(s, ast.Assign) and len(stores) == 1 and s.targets == stores and isinstance(
                s.value, ast.BinOp) and getattr(s.value.left, "id", None) == name:
            by, op = s.value.right, s.value.op
        else:
            continue
        if isinstance(by, ast.Constant) and type(by.value) is int:
            return by.value if isinstance(op, ast.Add) else -by.value if isinstance(
                op, ast.Sub) else None
    return None


def _without_continue(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements without ``continue``: what follows goes into the other branch."""
    out: list[ast.stmt] = []
    for k, s in enumerate(body):
        if isinstance(s, ast.Continue):
            return out or [ast.copy_location(ast.Pass(), s)]
        if isinstance(s, ast.If) and _leaves([s], ast.Continue):
            rest = body[k + 1 :]
            if len(list(ast.walk(ast.Module(list(rest), [])))) > 400:
                return list(body)  # it would be there twice, and again in it
            then = _without_continue([*s.body, *rest])
            orelse = _without_continue([*s.orelse, *copy.deepcopy(rest)])
            return [*out, ast.copy_location(ast.If(s.test, then, orelse), s)]
        out.append(s)
    return out


def _leaves(body: Iterable[ast.AST], *kinds: type) -> bool:
    """Whether statements leave a loop around, or the function."""
    kinds = kinds or (ast.Return, ast.Break, ast.Continue)
    for n in body:
        if isinstance(n, kinds):
            return True
        if isinstance(n, ast.For | ast.While):
            if ast.Return in kinds and _leaves(ast.iter_child_nodes(n), ast.Return):
                return True
        elif not isinstance(n, _SCOPES) and _leaves(ast.iter_child_nodes(n), *kinds):
            return True
    return False


# ---- The new function


def _hook(name: str, *args: ast.expr) -> ast.Call:
    hooks = ast.Name(HOOKS, ast.Load())
    return ast.Call(ast.Attribute(hooks, name, ast.Load()), list(args), [])


def _put(new: Any, node: Any) -> Any:
    """A new piece where a node begins: in one line, which is what its calls are said to be in."""
    new.lineno = new.end_lineno = node.lineno
    new.col_offset = new.end_col_offset = node.col_offset
    return new


def _function(name: str, parameters: Sequence[str], body: list) -> ast.FunctionDef:
    args = ast.arguments([], [ast.arg(p) for p in parameters], None, [], [], None, [])
    made: Any = ast.FunctionDef(name, args, body, [], None)
    made.type_params = []
    return made


def _lambda(body: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), body)


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _values(names: Iterable[str]) -> ast.Tuple:
    """The values of names, and a mark for those that have none."""
    return ast.Tuple([_hook("get", _lambda(_load(n))) for n in names], ast.Load())


def _unset(names: Iterable[str]) -> list[ast.stmt]:
    """Names whose value is the mark have none again."""
    hooks = ast.Attribute(_load(HOOKS), "UNSET", ast.Load())
    return [
        ast.If(ast.Compare(_load(n), [ast.Is()], [hooks]), [ast.Delete([ast.Name(n, ast.Del())])],
               []) for n in names
    ]


class _Rewriter(ast.NodeTransformer):
    """``depth``: of loops around; also 1 in functions inside, which loops may call.

    Outside of loops all stays as it is, but for the loops and what is called.
    """

    def __init__(self, function: ast.FunctionDef | ast.Lambda, depth: int):
        self.function, self.depth, self.count, self.around = function, depth, 0, 0
        inside = [n for n in ast.walk(function) if isinstance(n, _SCOPES) and n is not function]
        direct = {id(a) for n in ast.walk(function) if isinstance(n, ast.Call) for a in n.args}
        self.closures = [_free(n) for n in inside if isinstance(n, ast.FunctionDef | ast.Lambda)
                         or (isinstance(n, ast.GeneratorExp) and id(n) not in direct)]
        self.outside = {name for n in ast.walk(function)
                        if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}

    def change_function(self) -> None:
        f: Any = self.function
        f.body = self._block(f.body) if type(f) is ast.FunctionDef else self.visit(f.body)

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for s in body:
            if self.depth and isinstance(s, _EFFECTS):
                out.append(_put(ast.Expr(_hook("effect")), s))
            new = self.visit(s)
            for n in new if isinstance(new, list) else [new]:
                if not hasattr(n, "lineno"):
                    _put(n, s)
                out.append(n)
        return out or [ast.Pass()]

    def generic_visit(self, node: ast.AST) -> Any:
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, field, self._block(value))
            elif isinstance(value, list):
                setattr(node, field, [self.visit(v) if isinstance(v, ast.AST) else v
                                      for v in value])
            elif isinstance(value, ast.AST):
                setattr(node, field, self.visit(value))
        return node

    def _hooked(self, node: ast.expr, name: str, *args: ast.expr) -> ast.expr:
        return _put(_hook(name, *args), node)

    # ---- scopes inside

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        _Rewriter(node, 1).change_function()
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        _Rewriter(node, 1).change_function()
        return node

    # ---- loops and branches

    def _inside(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        self.depth += 1
        self.around += 1
        try:
            return self._block(body)
        finally:
            self.depth -= 1
            self.around -= 1

    def _refusal(self, node: ast.For | ast.While, names: Iterable[str]) -> str:
        """Why a loop is Python's; none if it may be staged."""
        target = ast.walk(node.target) if isinstance(node, ast.For) else ()
        if not all([isinstance(n, ast.Name | ast.Tuple | ast.expr_context) for n in target]):
            return "it assigns to other things than names"
        if node.orelse:
            return "it has `else`"
        for kind in (ast.Break, ast.Return, ast.Continue):
            if _leaves(node.body, kind):
                lines = [n.lineno for n in ast.walk(node) if isinstance(n, kind)]
                return f"it has `{kind.__name__.lower()}` (line {lines[0]})"
        shared = [self.outside, *self.closures]
        found = [name for name in names if any([name in s for s in shared])]
        return f"another function or scope has `{found[0]}`" if found else ""

    def _names(self, node: ast.For | ast.While, found: dict[str, bool]) -> list[LoopName]:
        """What is known of each name that a loop assigns."""
        inside = [id(n) for n in ast.walk(node)]
        elsewhere = {n.id for n in ast.walk(self.function) if isinstance(n, ast.Name)
                     and isinstance(n.ctx, ast.Load) and id(n) not in set(inside)}
        target = isinstance(node, ast.For) and node.target
        names = []
        for name, added in found.items():
            own = bool(target) and _mentions([target], name)
            first = "" if own else _begins(node.body, name)
            if isinstance(node, ast.While) and _mentions([node.test], name):
                first = "read"
            live = name in elsewhere or (first == "read" and self.around > 0)
            carried = first == "read" or (first == "perhaps" and live)
            names.append(LoopName(name, carried, live, added,
                                  None if own else _step(node.body, name)))
        return names

    def _part(self, stem: str, node: ast.AST, parameters: Sequence[str], names: Sequence[str],
              body: list[ast.stmt], result: ast.expr | None = None) -> tuple[ast.stmt, ast.Name]:
        """A function of a part of a statement, and its name."""
        self.count += 1
        name = f"_ft_{stem}{self.count}_{getattr(node, 'lineno', 0)}"
        made = _function(name, [*parameters, *names], [
            *_unset(names), *body, ast.Return(result or _values(names))])
        return _put(made, node), _load(name)

    def _assigned_by(self, node: ast.AST, call: ast.expr, names: Sequence[str]) -> list[ast.stmt]:
        """The names set to what a hook returns."""
        target = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
        made = ast.Assign([target], call) if names else ast.Expr(call)
        return [_put(s, node) for s in (made, *_unset(names))]

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        if _leaves(node.body, ast.Continue):
            node.body = _without_continue(node.body)
        found = _assignments(node.body, [node.target])
        if why := self._refusal(node, found):
            return self._plain_loop(node, why)
        names = self._names(node, found)
        nested = _depth(node)
        items = self._items(node.iter)
        bind = _put(ast.Assign([node.target], _load("_ft_item")), node.target)
        body, name = self._part("for", node, ["_ft_item"], list(found),
                                [bind, *self._inside(node.body)])
        about: Any = tuple(map(tuple, names)), nested
        call = _hook("for_", items, name, _values(found), ast.Constant(about))
        return [body, *self._assigned_by(node, call, list(found))]

    def _plain_loop(self, node: Any, why: str) -> list[ast.stmt]:
        """A loop that Python runs: if it is in another's body, that is written out."""
        before = [_put(ast.Expr(_hook("python", ast.Constant(why))), node)]
        self.around += 1
        try:
            return [*before, self.generic_visit(node)]
        finally:
            self.around -= 1

    def _items(self, node: ast.expr) -> ast.expr:
        """What a loop goes through."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and (
                node.func.id in ("zip", "enumerate", "range", "reversed")):
            made: Any = self._hooked(node, "items", node.func, *map(self._items, node.args))
            made.keywords = [self.visit(k) for k in node.keywords]
            return made
        return self.visit(node)

    def visit_While(self, node: ast.While) -> ast.stmt | list[ast.stmt]:
        if _leaves(node.body, ast.Continue):
            node.body = _without_continue(node.body)
        found = _assignments([*node.body, ast.Expr(node.test)])
        walrus = any([isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)])
        if why := "it has `:=`" if walrus else self._refusal(node, found):
            return self._plain_loop(node, why)
        names = self._names(node, found)
        self.depth += 1
        tested = self.visit(node.test)
        self.depth -= 1
        test, test_name = self._part("test", node, [], list(found), [], tested)
        body, name = self._part("while", node, [], list(found), self._inside(node.body))
        about: Any = (tuple(map(tuple, names)),)
        call = _hook("while_", test_name, name, _values(found), ast.Constant(about))
        return [test, body, *self._assigned_by(node, call, list(found))]

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        found = _assignments([*node.body, *node.orelse])
        walrus = any([isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)])
        closes = not all([c.isdisjoint(found) for c in self.closures])
        if not self.depth or walrus or closes or self.outside & set(found) or _leaves(
                [*node.body, *node.orelse]):
            return self.generic_visit(node)
        test = self.visit(node.test)
        parts = [self._part(stem, node, [], list(found), self._block(body) if body else [])
                 for stem, body in (("then", node.body), ("else", node.orelse))]
        about: Any = tuple(found)
        ways = [name for _, name in parts]
        call = _hook("if_", test, *ways, _values(found), ast.Constant(about))
        return [*[f for f, _ in parts], *self._assigned_by(node, call, list(found))]

    # ---- statements

    def _target(self, t: ast.expr) -> ast.expr:
        """What is assigned to: an item only of what is traced, while a loop is staged."""
        if isinstance(t, ast.Subscript):
            t.value = self._hooked(t, "target", self.visit(t.value))
            t.slice = self.visit(t.slice)
        elif isinstance(t, ast.Attribute):
            t.value = self._hooked(t, "owner", self.visit(t.value))
        elif isinstance(t, ast.Tuple | ast.List):
            t.elts = [self._target(e) for e in t.elts]
        elif isinstance(t, ast.Starred):
            t.value = self._target(t.value)
        return t

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        if not self.depth:
            return self.generic_visit(node)
        node.value = self._hooked(node.value, "value", self.visit(node.value))
        node.targets = [self._target(t) for t in node.targets]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | list[ast.stmt]:
        if not self.depth:
            node.value = node.value and self.visit(node.value)
            return node
        if node.value is None:
            return _put(ast.Pass(), node)
        return self.visit_Assign(_put(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | list[ast.stmt]:
        if not self.depth:
            node.value = self.visit(node.value)
            return node
        node.value = self.visit(node.value)
        if not isinstance(node.target, ast.Name):
            node.target = self._target(node.target)  # type: ignore[assignment]
            return node
        name = node.target.id
        parts: list[ast.stmt] = [node]
        for place, hook in ((0, "before_add"), (2, "value")):
            s = ast.Assign([ast.Name(name, ast.Store())], _hook(hook, _load(name)))
            parts.insert(place, _put(s, node))
        return parts

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        node.value = self.visit(node.value)
        if self.depth:
            node.value = self._hooked(node.value, "value", node.value)
        return node

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        if node.value is not None:
            value = self.visit(node.value)
            node.value = self._hooked(value, "value", value) if self.depth else value
        return node

    # ---- expressions

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._hooked(node, "load", node) if self.depth and isinstance(
            node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.visit(node.value)
        if not self.depth or not isinstance(node.ctx, ast.Load):
            return node
        return self._hooked(node, "attribute", node.value, ast.Constant(node.attr))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return self._hooked(node, "load", node) if self.depth and isinstance(
            node.ctx, ast.Load) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        func = node.func if isinstance(node.func, ast.Name) else self.visit(node.func)
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        node.func = self._hooked(func, "callee", func)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        if not self.depth or any([isinstance(n, ast.NamedExpr) for n in ast.walk(node)]):
            return node
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        made = node.values[-1]
        for x in reversed(node.values[:-1]):
            made = self._hooked(x, name, x, _lambda(made))
        return made

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        if not self.depth or any([isinstance(n, ast.NamedExpr) for n in ast.walk(node)]):
            return node
        return self._hooked(node, "choose", node.test, _lambda(node.body), _lambda(node.orelse))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if not self.depth or not isinstance(node.op, ast.Not):
            return node
        return self._hooked(node, "not_", node.operand)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        self.generic_visit(node)
        return self._hooked(node, "text", node) if self.depth else node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        node.value = self.visit(node.value)
        return node


def _depth(node: ast.AST) -> int:
    """How deep loops are nested."""
    own = isinstance(node, ast.For | ast.While)
    return own + max([_depth(n) for n in ast.iter_child_nodes(node)], default=0)
