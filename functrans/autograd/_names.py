"""Names of autograd that are not here: what an error says to use in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ENGINE = "the engine is functrans' own; tracer.trace with a Node follows the ops of a function"
CONTAINERS = "containers of traced values are Python's own lists, tuples and dicts"
RULES = "derivatives of NumPy's functions are ops of functrans, see docs/ops.md"
# name, in whatever module -> the way out
INSTEAD = {
    **dict.fromkeys((
        "backward_pass", "add_outgrads", "sparse_add", "sparse_object_types", "trace_stack",
        "TraceStack", "find_top_boxed_args", "box_types", "box_type_mappings",
        "trace_primitives_map", "translate_vjp", "translate_jvp", "SparseBox",
    ), ENGINE),
    **dict.fromkeys((
        "container_take", "container_untake", "make_sequence",
        "sequence_extend_left", "sequence_extend_right", "TupleMeta", "ListMeta", "DictMeta",
        "SequenceVSpace", "ListVSpace", "TupleVSpace", "DictVSpace", "NamedTupleVSpace",
    ), CONTAINERS),
    **dict.fromkeys(("wrap_namespace", "wrap_intdtype", "wrap_if_boxes_inside",
                     "notrace_functions", "concatenate_args"),
                    "functions of autograd.numpy are NumPy's; extend.primitive wraps others"),
    **dict.fromkeys(("untake", "grad_einsum", "dot_adjoint_0", "dot_adjoint_1", "unpermuter",
                     "matmul_adjoint_0", "matmul_adjoint_1", "tensordot_adjoint_0",
                     "tensordot_adjoint_1", "grad_chooser", "reverse_axis"), RULES),
    "numpy_jvps": RULES,
}


def missing(module: str) -> Callable[[str], Any]:
    """``__getattr__`` of a module, for names that it has not."""

    def get(name: str) -> Any:
        ours = module.replace("functrans.autograd", "autograd", 1)
        cure = INSTEAD.get(name, "docs/howto/autograd.md says what is there")
        raise AttributeError(f"module '{module}' has no attribute '{name}': functrans.autograd has "
                             f"no {ours}.{name}; {cure}", name=name)

    return get
