"""The tree of paths as one C function of the arguments, which walks it from piece to piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from functrans import tree
from functrans._compile.ir.program import Var
from functrans._compile.run.entry import Step, Test, tree_entry
from functrans._compile.run.frame import Argument
from functrans._transforms.staging.entry import maker

if TYPE_CHECKING:
    from functrans._compile.run.guards import Guards


class TreeNode(Protocol):
    """A segment of a path, and the decision behind it."""

    piece: Any
    structure: Any
    decision: Any
    test: Any
    used: Any

    @property
    def children(self) -> Mapping[Any, Any]:
        """The pieces behind it."""
        raise NotImplementedError


class Paths(Protocol):
    """The paths of one function for one kind of arguments."""

    clock: Any

    @property
    def inputs(self) -> Sequence[Var]:
        """The variables of the arguments."""
        raise NotImplementedError

    @property
    def leaves(self) -> Iterable[TreeNode]:
        """The ends of the paths."""
        raise NotImplementedError

    @property
    def root(self) -> TreeNode | None:
        """Where all begin."""
        raise NotImplementedError

    def nodes(self) -> Iterable[tuple[int, Any, TreeNode]]:
        """All pieces, each behind the one before it."""
        raise NotImplementedError


def native(paths: Paths, guards: Guards | None) -> Callable | None:
    """The result for plain arguments; NotImplemented where Python has to walk, or to stage a path.

    None where no path is native and verified from its beginning to its end.
    """
    direct = all([_is_direct(leaf.structure) for leaf in list(paths.leaves)])
    root = _steps(paths, labelled=not direct)
    arguments = [Argument(*v.aval, v.weak) for v in paths.inputs]
    walk = None if root is None else tree_entry(arguments, root, paths.clock, guards=guards)
    if walk is None or direct:
        return walk

    def nested(*args: Any) -> Any:
        ys = walk(*args)
        return ys if ys is NotImplemented else ys[-1](ys)

    return nested


def _is_direct(structure: tree.Structure) -> bool:
    """Whether a result, or the tuple of several, is what the caller gets."""
    several = structure.size > 1 and structure.kind is tuple
    return structure is tree.LEAF or (several and set(structure.children) == {tree.LEAF})


def _steps(paths: Paths, labelled: bool) -> Step | None:
    """The root as the C function knows it, and all behind it; None if its code is not native."""
    steps: dict[Any, Step] = {}
    for _, _, node in reversed(list(paths.nodes())):
        piece = node.piece
        code = None if piece.entry is None else piece.entry.verified
        if code is not None or piece.entry is None:
            label = maker(node.structure) if labelled and node.test is None else None
            steps[node] = Step(code, piece.reads, piece.gives, _test(node, steps), node.used, label)
    return steps.get(paths.root)


def _test(node: TreeNode, steps: dict[Any, Step]) -> Test | None:
    """The decision behind a node, and where its outcomes lead; Python raises what one raised."""
    if node.decision is None:
        return None
    below = [(child.outcome_above, steps[child]) for child in list(node.children.values())
             if child in steps and not isinstance(child.outcome_above, Exception)]
    dtype, shape = node.decision.variable.aval.dtype, node.decision.variable.aval.shape
    return Test(node.test, dtype, shape, node.decision.convert, below)
