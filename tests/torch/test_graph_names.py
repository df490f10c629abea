"""``autograd.graph`` and nodes: what is saved, edges, hooks of several tensors, deep walks."""

import pytest

import functrans.torch as torch
from functrans.torch.autograd import Function, graph


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


OPERATIONS = {
    "exp": lambda x, w: x.exp(), "mul": lambda x, w: x * w, "matmul": lambda x, w: x @ w,
    "sum of products": lambda x, w: torch.einsum("ij,jk->ik", x, w), "softmax": (
        lambda x, w: x.softmax(1)),
    "inv": lambda x, w: torch.linalg.inv(x + w),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_saved_is_packed_and_unpacked(name):
    x, w = leaf(1.0, 2.0, 3.0, 5.0).reshape(2, 2), leaf(4.0, 3.0, 1.0, 0.5).reshape(2, 2)
    want = torch.autograd.grad(OPERATIONS[name](x, w).sum(), x)
    kept = {}

    def pack(t):
        assert isinstance(t, torch.Tensor) and not torch.is_grad_enabled()
        kept[len(kept)] = t.numpy().tobytes(), t.shape
        return len(kept) - 1

    def unpack(key):
        import numpy as np

        data, shape = kept[key]
        return torch.from_numpy(np.frombuffer(data).reshape(shape).copy())

    with graph.saved_tensors_hooks(pack, unpack):
        y = OPERATIONS[name](x, w)
    assert kept
    got = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.allclose(got[0], want[0], rtol=1e-14)


def test_second_derivatives_read_what_was_packed():
    x = leaf(1.0, 2.0)
    with graph.save_on_cpu(pin_memory=True):
        y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert h.tolist() == [6.0, 12.0]


def test_what_a_function_saves_is_packed_too():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * x

    x = leaf(3.0)
    with graph.saved_tensors_hooks(lambda t: t * 10, lambda t: t / 10):
        y = Square.apply(x)
    y.backward()
    assert x.grad.tolist() == [6.0]


def test_hooks_nest_end_and_can_be_refused():
    x, seen = leaf(2.0), []
    with graph.saved_tensors_hooks(lambda t: seen.append("outer") or t, lambda t: t):
        with graph.saved_tensors_hooks(lambda t: seen.append("inner") or t, lambda t: t):
            x.exp()
        x.exp()
    x.exp()
    assert seen == ["inner", "outer"]
    with (graph.disable_saved_tensors_hooks("not in here"),
          pytest.raises(RuntimeError, match="not in here"), graph.save_on_cpu()):
        pass
    with graph.saved_tensors_hooks(lambda t: 0, lambda t: t):
        y = x.exp()
    with pytest.raises(TypeError, match=r"unpack_hook expected to be a Tensor but got .* int"):
        y.backward()


def test_nodes_show_what_they_have_saved():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = x.tanh()
    assert torch.equal(y.grad_fn._saved_result, y)
    assert y.grad_fn._saved_result.grad_fn is y.grad_fn
    product = (x * w).grad_fn
    assert product._saved_self is x and product._saved_other is w
    assert (x**2).grad_fn._saved_exponent == 2 and (x**2).grad_fn._saved_self is x
    with pytest.raises(AttributeError, match="has no attribute '_saved_self'"):
        y.grad_fn._saved_self  # noqa: B018  # reading it raises
    y.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        y.grad_fn._saved_result  # noqa: B018  # reading it raises


def test_nodes_are_shown_as_objects():
    x = leaf(1.0)
    assert repr((x + 1).grad_fn).startswith("<AddBackward0 object at 0x")

    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    node = Same.apply(x).grad_fn
    assert repr(node).startswith("<torch.autograd.function.SameBackward object at 0x")
    assert node.__class__ is Same._backward_cls and isinstance(node, Same._backward_cls)


def test_a_node_is_called_with_gradients():
    x = leaf(3.0)
    node = (x**2).grad_fn
    assert node(torch.ones(1, dtype=torch.float64)).tolist() == [6.0]
    for grads in ((), (x, x)):
        with pytest.raises(TypeError, match=f"expected 1 arguments, got {len(grads)} instead"):
            node(*grads)
    with pytest.raises(TypeError, match="expected a Tensor or None, but got int"):
        node(1)
    first, second = (x * leaf(5.0)).grad_fn(torch.ones(1, dtype=torch.float64))
    assert (first.tolist(), second.tolist()) == ([5.0], [3.0])


def test_edges_are_places_to_start_from_and_to_end_at():
    x = leaf(1.0, 2.0)
    y = x * x
    z = y.sum()
    edge = graph.get_gradient_edge(y)
    assert edge.node is y.grad_fn and edge.output_nr == 0
    del y
    (g,) = torch.autograd.grad(z, edge, retain_graph=True)
    assert g.tolist() == [1.0, 1.0]
    (g,) = torch.autograd.grad(edge, x, torch.tensor([1.0, 10.0], dtype=torch.float64))
    assert g.tolist() == [2.0, 40.0]
    torch.autograd.backward(x.sum(), inputs=graph.get_gradient_edge(x))
    assert x.grad.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="for a GradientEdge pass the gradient"):
        torch.autograd.grad(edge, x)
    with pytest.raises(RuntimeError, match="not possible to get the gradient edge for a Tensor"):
        graph.get_gradient_edge(torch.ones(1))


def test_a_hook_of_several_tensors_sees_the_gradients_of_each_backward():
    x, y, z, seen = leaf(1.0), leaf(2.0), leaf(3.0), []
    handle = graph.register_multi_grad_hook(
        (x, y, z), lambda gs: seen.append([None if g is None else g.item() for g in gs]))
    (x * y).backward()
    (x * z * y).backward()
    torch.autograd.grad(x * z, z)
    assert seen == [[2.0, 1.0, None], [6.0, 3.0, 2.0], [None, None, 1.0]]
    handle.remove()
    (x * y).backward()
    assert len(seen) == 3


def test_a_hook_of_any_tensor_sees_the_first_gradient():
    x, y, seen = leaf(1.0), leaf(2.0), []
    a, b = x * 1, y * 1
    graph.register_multi_grad_hook((a, b), seen.append, mode="any")
    out = a * b
    out.backward(retain_graph=True)
    out.backward()
    assert len(seen) == 2
    with pytest.raises(ValueError, match=r"one of \('all', 'any'\) but got some"):
        graph.register_multi_grad_hook((a,), print, mode="some")


def test_a_change_by_other_means_is_counted():
    x = leaf(2.0)
    y = x.exp()
    graph.increment_version(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_walks_nest_deeper_than_a_stack():
    depth = []

    class Deeper(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.left = x.item()
            return x - 1

        @staticmethod
        def backward(ctx, g):
            depth.append(torch.get_default_dtype())
            if ctx.left > 0:
                with torch.enable_grad():
                    x = torch.tensor(ctx.left - 1, dtype=torch.float64, requires_grad=True)
                    Deeper.apply(x).backward()
            return g

    Deeper.apply(torch.tensor(300.0, dtype=torch.float64, requires_grad=True)).backward()
    assert len(depth) == 301


def test_an_error_in_a_deep_walk_arrives():
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.left = x.item()
            return x - 1

        @staticmethod
        def backward(ctx, g):
            if not ctx.left:
                raise ZeroDivisionError("at the bottom")
            with torch.enable_grad():
                Fails.apply(torch.tensor(ctx.left - 1, requires_grad=True)).backward()
            return g

    with pytest.raises(ZeroDivisionError, match="at the bottom"):
        Fails.apply(torch.tensor(60.0, requires_grad=True)).backward()


def test_multithreading_is_a_mode_without_effect():
    from functrans.torch._graph.modes import is_multithreading_enabled

    with torch.autograd.set_multithreading_enabled(False):
        assert not is_multithreading_enabled()
    assert is_multithreading_enabled()


def test_the_legacy_way_of_a_function_is_refused():
    class Old(Function):
        def forward(self, x):
            return x

    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        old = Old()
    for name in ("metadata", "next_functions", "register_hook", "_do_backward"):
        with pytest.raises(RuntimeError, match=f"Attribute '{name}' is invalid for this instance"):
            getattr(old, name)


def test_what_is_no_place_in_the_graph_is_refused():
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="all inputs have to be Tensors or Gradient"):
        torch.autograd.grad(x * 2, [3])
    with pytest.raises(RuntimeError, match=r"`inputs` argument to `grad\(\)` cannot be empty"):
        torch.autograd.grad(x * 2, [])
    with pytest.raises(RuntimeError, match=r"`inputs` argument to `backward\(\)` cannot be empty"):
        (x * 2).backward(inputs=[])
    with pytest.raises(RuntimeError, match="nodes are made by operations"):
        torch.autograd.Variable(torch.ones(1), _grad_fn=(x * 2).grad_fn)
    with pytest.raises(RuntimeError, match="incompatible tensor type: one is sparse"):
        x.data = torch.sparse_coo_tensor([[0]], [1.0], (1,))


def test_views_of_one_function_are_batched_and_differentiated_twice():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)

    def f(x):
        return (x.unbind()[1] * x.split(1, 1)[0].squeeze(1) ** 2).sum()

    one_by_one = torch.autograd.functional.hessian(f, x)
    assert torch.equal(torch.autograd.functional.hessian(f, x, vectorize=True), one_by_one)
    assert one_by_one.reshape(4, 4).tolist() == [
        [6.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 8.0, 6.0], [0.0, 0.0, 6.0, 0.0]]


@pytest.mark.parametrize(("name", "node"), [
    ("relu6", "Hardtanh"), ("tanhshrink", "Sub"), ("softsign", "Div"), ("selu", "Elu"),
    ("logsigmoid", "LogSigmoid"), ("softmin", "Softmax"), ("normalize", "Div"), ("mish", "Mish"),
    ("gelu", "Gelu"), ("hardswish", "Hardswish")])
def test_functions_of_layers_are_named_in_the_graph_as_in_torch(name, node):
    v = torch.ones(3, 4, requires_grad=True)
    options = {"dim": 1} if name == "softmin" else {}
    y = getattr(torch.nn.functional, name)(v, **options)
    assert y.grad_fn.name() == f"{node}Backward0"
