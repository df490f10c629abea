"""The paths through a function that decides by traced values: a tree of programs.

A node is a straight piece of program up to the next decision, an edge what was decided. A call
runs the piece of the root, looks at its decision, goes to the child for that outcome, and so on
to a leaf, so what paths have in common is run once. Each piece is a compiled function: transforms
see a chain of calls, and a decision by a value of theirs is theirs to refuse. Calls with plain
values walk the tree natively, from piece to piece, and come here where it ends.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from time import thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Atom, Eqn, Program, Var, check
from functrans._compile.ir.structured import live
from functrans._compile.lowering.numbers import Rounding
from functrans._compile.run.store import program_key
from functrans._core.bind import newest_trace
from functrans._core.locks import Interrupted, compiler
from functrans._transforms.drawing import Draw, Drawn
from functrans._transforms.staging.entry import Entry, JitCall, nothing
from functrans._transforms.staging.reads import Check, Reads
from functrans._transforms.staging.recording import (
    Decision,
    Endless,
    Outcome,
    Recording,
    Uncompiled,
    outcome_of,
)
from functrans._transforms.staging.signature import same_atom, same_eqn
from functrans.errors import warn

if TYPE_CHECKING:
    from functrans._compile.run.guards import Guards

# Where a value on a path comes from: the number of an argument or of a result of an equation, or
# the place of what the function closes over.
Source = Hashable
# Times that a call begins again where other threads change the tree, or the function never does
# the same twice.
MOST_RESTARTS = 8
# The plan of the C function is made anew when a path has been added, in a time that grows with the
# tree: so after one call for each so many paths that meets no new one.
CALLS_BEFORE_PLAN = 7
# Seconds of a processor that paths beside the first may take for nothing. Then one is added where
# Python has taken as long for calls that turned off there as a path has taken so far, on average.
ALLOWANCE = 1.0
# What adds the path that begins with a list of outcomes; of a batch, that of an entry.
Grow = Callable[..., None]


class Segment(NamedTuple):
    """The code of a node: what it ``reads`` and ``gives``, some of it
    numbers of Python's (``weak``)."""

    entry: Entry | None  # None: it computes nothing
    reads: tuple[Source, ...]
    gives: tuple[Source, ...]
    weak: tuple[Source, ...]


class Node:
    """A piece of a path: equations, and the decision, or the outputs, that follow them.

    ``sources`` says what the variables of its equations are; pieces of later nodes need ``given``.
    ``draws`` are what is drawn on its piece of the path, with their numbers on the whole.
    """

    __slots__ = ("children", "convert", "decision", "draws", "eqns", "given", "missed", "outputs",
                 "parent", "piece", "sources", "structure", "test", "used")

    piece: Segment

    def __init__(self, eqns: Sequence[Eqn], sources: Mapping[Var, Source],
                 decision: Decision | None, outputs: tuple[Atom, ...], structure: Any,
                 draws: Sequence[tuple[int, Draw]]):
        self.eqns, self.sources, self.draws = eqns, sources, draws
        self.decision, self.outputs, self.structure = decision, outputs, structure
        self.test = None if decision is None else sources[decision.variable]
        self.convert: Any = None if decision is None else decision.convert
        self.given: set[Source] = set()
        self.children: dict[Any, Node] = {}
        self.missed: dict[Any, float] = {}  # seconds of Python's, for outcomes without a child
        self.parent: tuple[Node, Outcome] | None = None
        self.used = np.zeros(1, np.int64)  # when a call took it, for leaves

    def like(self, other: Node) -> bool:
        """Whether it computes and decides the same."""
        if self.test != other.test or len(self.eqns) != len(other.eqns):
            return False
        if self.convert is not other.convert:
            return False
        if len(self.draws) != len(other.draws) or not all([
            x.like(y) for (_, x), (_, y) in zip(self.draws, other.draws, strict=True)
        ]):
            return False
        pairs = zip(self.eqns, other.eqns, strict=True)
        if not all([same_eqn(x, y, self.sources, other.sources) for x, y in pairs]):
            return False
        if self.structure != other.structure or len(self.outputs) != len(other.outputs):
            return False
        ends = zip(self.outputs, other.outputs, strict=True)
        return all([same_atom(x, y, self.sources, other.sources) for x, y in ends])

    @property
    def outcome(self) -> Outcome | None:
        """What was decided when it was staged, None if that was not known."""
        return None if self.decision is None else self.decision.outcome

    @property
    def outcome_above(self) -> Any:
        """What leads here: a number, or the exception that was raised."""
        assert self.parent is not None
        return self.parent[1].value

    def path(self) -> list[Node]:
        """From the root to here."""
        nodes: list[Node] = [self]
        while (above := nodes[-1].parent) is not None:
            nodes.append(above[0])
        return nodes[::-1]


class TraceTree:
    """The paths of one function for one kind of arguments, at most ``most``.

    ``endless``: there were too many, and what has no path here is for Python; ``told`` are the
    lines that a warning has named.
    """

    def __init__(self, name: str, rounding: Rounding, most: int, told: set[str]):
        self.name, self.rounding, self.most, self.told = name, rounding, most, told
        self.inputs: tuple[Var, ...] = ()
        self.root: Node | None = None
        self.leaves: dict[Node, None] = {}
        self.shared: dict[str, Entry] = {}
        self.dropped: Counter[str] = Counter()
        self.staged = 0
        self.spent = 0.0  # seconds, on all paths but the first
        self.refused: tuple[Node, Any] | None = None  # the latest outcome that was not worth a path
        self.endless = False
        self.checks: Mapping[tuple, Check] = {}
        self.reads: Reads | None = None
        self.holders: list[Any] = []
        self.closes_over: Sequence = ()  # whether it does
        self.draws = False  # whether a path does
        self.clock = np.zeros(1, np.int64)  # calls so far
        self.walks = 0  # by Python, since a path was added
        self.native: Callable = nothing  # the C function, for the leaves that were ``tried``
        # what that compares of the reads, and what is compared before it is called
        self.guards: Guards | None = None
        self.quick: Callable[[], bool] | None = None
        self.tried: frozenset[Node] = frozenset()

    once = False

    def values(self, traced: Mapping, operands: Sequence, drawn: Drawn) -> dict[Source, Any]:
        """What a call begins with."""
        return {**traced, **dict(enumerate(operands)), Drawn: drawn}

    def is_current(self) -> bool:
        return self.reads is None or self.reads.unchanged()

    def depend_on(self, checks: Mapping[tuple, Check]) -> None:
        """Note what the function has read, and not changed, when a path was staged."""
        if checks.keys() != self.checks.keys():
            self.reads = Reads(list(checks.values())) if checks else None
        self._forget_native()
        self.checks = checks

    # ---- calls

    def run(self, start: dict, grow: Grow | None) -> Any:
        """The result; NotImplemented if its path is not here and ``grow`` does not add it."""
        y = NotImplemented
        if not (self.closes_over or self.draws):
            *args, _ = start.values()
            y = self.native(*args)
        return self._in_steps(start, grow) if y is NotImplemented else y

    def _in_steps(self, start: dict, grow: Grow | None) -> Any:
        began, staged = thread_time(), self.staged
        found = self.find(start, grow)
        y = NotImplemented if found is None else self._end(*found)
        if self.staged > staged:
            self.spent += thread_time() - began
        return y

    def find(self, start: dict, grow: Grow | None) -> tuple[Node, list] | None:
        """The leaf of a call, and what its piece reads."""
        known: dict[Node, Outcome] = {}
        for _ in range(MOST_RESTARTS if self.root else 0):
            node, values, outcomes = self.root, dict(start), []
            while node is not None and node.test is not None and decides(node, values):
                if node not in known:
                    known[node] = outcome_of(node.convert, values[node.test])
                outcomes.append(known[node])
                child = node.children.get(known[node].key)
                if child is None:
                    if grow is None or self.endless or not self._pays(node, known[node].key):
                        return None
                    grow(outcomes)
                    child = node.children.get(known[node].key)
                node = child
            leaf = node is not None and node.test is None
            if node is not None and leaf and (args := reach(node, values)) is not None:
                return node, args
            # the tree has grown meanwhile, and its pieces give more than they did
        return None

    def _pays(self, node: Node, key: Any) -> bool:
        """Whether to add a path for an outcome; else it is noted that Python runs the call."""
        more = self.staged - 1
        if self.spent < ALLOWANCE or node.missed.get(key, 0.0) * more >= self.spent:
            self.refused = None
            return True
        self.refused = node, key
        return False

    def run_by_python(self, run: Callable[[], Any]) -> Any:
        """A call whose path is not here."""
        began, refused = thread_time(), self.refused
        y = run()
        if refused is not None:
            node, key = refused
            node.missed[key] = node.missed.get(key, 0.0) + thread_time() - began
        return y

    def refusal(self) -> str:
        """Why calls are run by Python, the first time that it is asked; else nothing."""
        if self.refused is None or self.refused[0].decision is None:
            return ""
        line = self.refused[0].decision.line
        if f"budget {line}" in self.told:
            return ""
        self.told.add(f"budget {line}")
        return (f"{line}: paths through the values decided here,{_show(line)} keep coming and cost "
                f"more than they save: {self.staged - 1} in {self.spent:.1f} s. Calls that take "
                "others run as plain Python; np.where, ft.cond or a loop of ft's has one program "
                "for all")

    def _end(self, node: Node, args: list) -> Any:
        self.use(node)
        entry = node.piece.entry
        assert entry is not None
        outs = call(entry, args)
        self.walks += 1
        settled = self.walks * CALLS_BEFORE_PLAN >= len(self.leaves)
        if settled and node not in self.tried and entry.verified is not None:
            with suppress(Interrupted):
                self._walk_natively()
        return entry.result(outs)

    def use(self, leaf: Node) -> None:
        """Note that a call takes a path."""
        self.clock += 1
        leaf.used[:] = self.clock

    @property
    def shortcut(self) -> tuple[Callable, Callable[[tuple], Any]]:
        """As that of an entry, for the paths that are here; the second may decline too."""
        if self.refused is not None:  # the general way is likely to be gone, which walks again
            return self.native, nothing
        return self.native, lambda args: self._in_steps(self.values({}, args, Drawn()), None)

    def _walk_natively(self) -> None:
        """Let the C function walk the tree as it is, as far as code is native and verified."""
        leaves = frozenset(self.leaves)
        with compiler():
            from functrans._transforms.staging import walking  # lazy: the whole compiler

        guards, quick = (None, None) if self.reads is None else self.reads.native
        walk = walking.native(self, guards)
        self._forget_native()
        if walk is not None:
            self.native, self.guards, self.quick = walk, guards, quick
        self.tried = leaves

    def _forget_native(self) -> None:
        self.native, self.guards = nothing, None
        self.quick = None if self.reads is None else self.reads.unchanged

    # ---- growth

    def add(self, path: Recording, places: Mapping[int, Source]) -> None:
        """Add a path; ``places`` are those of the values that it closes over, by their id."""
        self.staged += 1
        self.draws = self.draws or bool(path.draws.draws)
        self.inputs = path.program.inputs
        nodes = self._nodes(path, places)
        kept: list[Node] = []
        above: dict[Any, Node] = {} if self.root is None else {None: self.root}
        key: Any = None
        for node in nodes:
            known = above.get(key)
            kept.append(known if known is not None and known.like(node) else node)
            above, key = kept[-1].children, node.outcome and node.outcome.key
        self._give(kept)
        self._link(kept, [node.outcome for node in nodes if node.outcome is not None])
        self.tried, self.walks = frozenset(), 0
        self._forget_native()
        while len(self.leaves) > self.most:
            self._drop(min(self.leaves, key=lambda leaf: leaf.used[0]))
        if sum(self.dropped.values()) >= self.most:
            self.end(self.dropped.most_common(1)[0][0], f"in ever new ways: {self.staged} paths "
                     f"were compiled, of which max_paths={self.most} are kept")

    def give_up(self, why: Uncompiled) -> None:
        """Add no more paths, for Python has to run what has none here."""
        if isinstance(why, Endless):
            self.end(why.line, why.how)
            return
        self.endless = True
        text = str(why.error)
        if text not in self.told:
            self.told.add(text)
            warn(f"{text} All other calls of {self.name} run as plain Python from now on.")

    def end(self, line: str, how: str) -> None:
        """Add no more paths, for there seem to be endlessly many."""
        self.endless = True
        if line not in self.told:
            self.told.add(line)
            warn(
                f"{line}: {self.name} decides by a traced value here,{_show(line)} {how}. All "
                "other calls run as plain Python from now on. Write a loop as ft.while_loop, with "
                "max_steps= where it is differentiated, or as ft.fori_loop, a choice as ft.cond or "
                "np.where; use NumPy's functions in place of float() and math, ft.array(y)[i] "
                "for a plain array y, arrays of functrans.numpy to assign into, and "
                "ft.debug.print to show numbers."
            )

    def _nodes(self, path: Recording, places: Mapping[int, Source]) -> list[Node]:
        """A path cut at its decisions."""
        program = path.program
        sources: dict[Var, Source] = {v: i for i, v in enumerate(program.inputs)}
        sources |= {v: places[id(x)] for x, v in path.lifted}
        results = [v for eqn in program.eqns for v in eqn.outputs]
        sources |= {v: i for i, v in enumerate(results, len(program.inputs))}
        nodes, start = [], 0
        for d in path.decisions:
            draws = path.draws.before(len(nodes))
            nodes.append(Node(program.eqns[start : d.after], sources, d, (), None, draws))
            start = d.after
        if not path.decisions or path.decisions[-1].outcome is not None:
            rest = program.eqns[start:]
            draws = path.draws.before(len(nodes))
            nodes.append(Node(rest, sources, None, program.outputs, path.structure, draws))
        return nodes

    def _give(self, nodes: Sequence[Node]) -> None:
        """Make the pieces of a path, from its end: each gives what later ones read."""
        later: set[Source] = set()
        made = []
        for node in reversed(nodes):
            own = {node.sources[v] for eqn in node.eqns for v in eqn.outputs}
            wanted = (later if node.test is None else {*later, node.test}) & own
            if not hasattr(node, "piece") or not wanted <= node.given:
                node.given = node.given | wanted
                made.append((node, self._piece(node)))
            piece = made[-1][1] if made and made[-1][0] is node else node.piece
            later = (later - own) | set(piece.reads)
            if node.test is not None and node.test not in own:
                later.add(node.test)
        for node, piece in reversed(made):
            node.piece = piece

    def _piece(self, node: Node) -> Segment:
        """The code of a node that gives what is wanted of it."""
        order = [v for eqn in node.eqns for v in eqn.outputs if node.sources[v] in node.given]
        outputs = node.outputs if node.test is None else tuple(order)
        if node.test is not None and not order:
            return Segment(None, (), (), ())
        reads, program = _straight(node.eqns, outputs)
        key = program_key(program)
        entry = None if key is None or node.test is None else self.shared.get(key)
        if entry is None:
            entry = Entry(self.name, program, node.structure, self.rounding)
            if key is not None and node.test is not None:
                self.shared[key] = entry
        return Segment(entry, tuple([node.sources[v] for v in reads]),
                     tuple([node.sources[v] for v in order]),
                     tuple([node.sources[v] for v in order if v.weak]))

    def _link(self, nodes: Sequence[Node], outcomes: Sequence[Outcome]) -> None:
        """Hang a path into the tree, in place of what was there."""
        edges = list(zip(pairwise(nodes), outcomes, strict=False))
        olds = [self.root, *[above.children.get(how.key) for (above, _), how in edges]]
        for old, node in zip(olds, nodes, strict=True):
            if old is not None and old is not node:
                self._forget(old)
        for (above, node), how in reversed(edges):
            node.parent = above, how
            above.children[how.key] = node
        self.root = nodes[0]
        if nodes[-1].test is None:
            self.leaves[nodes[-1]] = None
            nodes[-1].used[:] = self.clock

    def _forget(self, node: Node) -> None:
        """Forget the leaves behind a node that the function no longer comes to."""
        for leaf in list(self.leaves):
            if node in leaf.path():
                del self.leaves[leaf]
                self.dropped[_line_above(leaf)] += 1

    def _drop(self, leaf: Node) -> None:
        """Take a leaf out, and the nodes that lead to it alone."""
        del self.leaves[leaf]
        node = leaf
        while node.parent is not None:
            above, how = node.parent
            if above.children.get(how.key) is node:
                del above.children[how.key]
            if above.children or above is self.root:
                break
            node = above
        self.dropped[_line_above(node)] += 1

    # ---- for people to read

    def entry_of(self, leaf: Node) -> Entry:
        """A path as one program, its decisions the last outputs."""
        return Entry(self.name, self.whole(leaf), leaf.structure, self.rounding)

    def whole(self, leaf: Node) -> Program:
        """The program of a path, its decisions the last outputs."""
        known: dict[Source, Var] = {}
        eqns: list[Eqn] = []
        tests: list[Atom] = []
        starts: dict[Source, Var] = {}

        def read(a: Atom, sources: Mapping[Var, Source]) -> Atom:
            if not isinstance(a, Var):
                return a
            if (source := sources[a]) not in known:
                known[source] = starts[source] = Var(a.aval, a.weak)
            return known[source]

        for node in leaf.path():
            for eqn in node.eqns:
                inputs = tuple([read(a, node.sources) for a in eqn.inputs])
                outputs = tuple([Var(v.aval, v.weak) for v in eqn.outputs])
                known.update(zip([node.sources[v] for v in eqn.outputs], outputs, strict=True))
                eqns.append(Eqn(eqn.prim, inputs, eqn.params, outputs, eqn.line))
            if node.decision is not None:
                tests.append(read(node.decision.variable, node.sources))
        outputs = [read(a, leaf.sources) for a in leaf.outputs]
        order = sorted(starts, key=lambda s: (not isinstance(s, tuple), s if type(s) is int else 0))
        return check(Program(tuple([starts[s] for s in order]), tuple(eqns), (*outputs, *tests)))

    def pieces(self) -> list[Entry]:
        """The programs of all nodes, each once."""
        entries = [node.piece.entry for _, _, node in self.nodes()]
        return list(dict.fromkeys([e for e in entries if e is not None]))

    def nodes(self) -> Iterator[tuple[int, Any, Node]]:
        """All nodes in order, each with its depth and the outcome that leads to it."""
        todo: list[tuple[int, Any, Node]] = [] if self.root is None else [(0, None, self.root)]
        while todo:
            depth, key, node = todo.pop()
            yield depth, key, node
            todo += [(depth + 1, k, n) for k, n in reversed(list(node.children.items()))]


def read(keys: Sequence[Source], values: Mapping) -> list | None:
    """The values for what a piece reads, None if earlier ones did not give all of it."""
    try:
        return [values[k] for k in keys]
    except KeyError:
        return None


def reach(node: Node, values: dict) -> list | None:
    """The values for what the piece of a node reads, of which it may have to draw some."""
    if node.draws:
        values.update(values[Drawn].values(node.draws))
    return read(node.piece.reads, values)


def decides(node: Node, values: dict) -> bool:
    """Add to the values what a node gives; whether that, and what it decides by, could be had."""
    piece = node.piece
    args = reach(node, values)
    if piece.entry is not None:
        if args is None:
            return False
        _put(piece, call(piece.entry, args), values)
    return read((node.test,), values) is not None


def _put(piece: Segment, ys: Sequence, values: dict) -> None:
    values.update(zip(piece.gives, ys, strict=True))
    for k in piece.weak:
        if type(values[k]) is np.ndarray:
            values[k] = values[k].item()


def call(entry: Entry, args: list) -> Sequence:
    if newest_trace(args) is not None:
        return JitCall(entry)(*args)
    return entry.checked(args)


def _show(line: str) -> str:
    """The code of a line, as far as it can be had."""
    file, _, number = line.rpartition(":")
    text = linecache.getline(file, int(number)).strip() if number.isdigit() else ""
    return f" `{text}`," if text else ""


def _line_above(node: Node) -> str:
    decision = None if node.parent is None else node.parent[0].decision
    return "" if decision is None else decision.line


def _straight(eqns: Sequence[Eqn], outputs: tuple[Atom, ...]) -> tuple[list[Var], Program]:
    """The program of outputs from what its equations read, and what that is."""
    defined = {v for eqn in eqns for v in eqn.outputs}
    atoms = [a for eqn in eqns for a in eqn.inputs] + [*outputs]
    free = tuple(dict.fromkeys([a for a in atoms if isinstance(a, Var) and a not in defined]))
    program = live(Program(free, tuple(eqns), outputs))
    used = {a for eqn in program.eqns for a in eqn.inputs} | set(outputs)
    reads = [v for v in free if v in used]
    return reads, Program(tuple(reads), program.eqns, outputs)
