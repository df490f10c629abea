"""Modules beside those of derivatives: custom ops, trees, state hooks, fused layers, DLPack."""

from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

from functrans import torch
from functrans.torch import nn
from functrans.torch.nn.attention import SDPBackend, sdpa_kernel
from functrans.torch.utils import _pytree as tree


@torch.library.custom_op("tests::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


def test_a_custom_op_without_a_derivative_says_so():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"backward through tests.sine.default but no autograd"):
        sine(x).sum().backward()


def test_a_custom_op_has_the_derivative_that_is_registered():
    op = torch.library.custom_op("tests::other", lambda x, k: k * x**2, mutates_args=())

    def keep(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    torch.library.register_autograd(
        "tests::other", lambda ctx, g: (g * 2 * ctx.k * ctx.saved_tensors[0], None),
        setup_context=keep)
    x = torch.tensor([3.0], requires_grad=True)
    torch.ops.tests.other(x, k=2.0).backward()
    assert x.grad.item() == 12
    assert torch.library.opcheck(op, (x, 1.0))["test_schema"] == "SUCCESS"
    op.register_vmap(lambda info, in_dims, x, k: (k * x**2, 0))
    assert torch.vmap(lambda v: op(v, 1.0))(torch.ones(2)).tolist() == [1, 1]


def test_kernels_of_custom_ops_are_those_for_the_cpu():
    op = torch.library.custom_op("tests::third", lambda x: x, mutates_args=())
    op.register_kernel("cuda", lambda x: x + 1)
    assert op(torch.ones(1)).item() == 1
    torch.library.register_kernel(op, "cpu", lambda x: x + 2)
    torch.library.register_fake(op)(lambda x: x)
    op.register_fake(lambda x: x)
    assert op(torch.ones(1)).item() == 3


def test_custom_ops_that_cannot_be_are_refused():
    with pytest.raises(NotImplementedError, match="written to are not supported"):
        torch.library.custom_op("tests::a", lambda x: x, mutates_args=("x",))
    with pytest.raises(ValueError, match="expected a name of the form"):
        torch.library.custom_op("a", lambda x: x, mutates_args=())

    def by_name(x, *, k):
        return x

    op = torch.library.custom_op("tests::b", by_name, mutates_args=())
    with pytest.raises(NotImplementedError, match="by name alone"):
        op(torch.ones(1), k=2)
    with pytest.raises(AttributeError, match="only ops that"):
        torch.ops.aten.add(1, 2)


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize("nested", [
    3, [1, (2, None)], {"b": 1, "a": [2]}, OrderedDict(x=1, y=2), Pair(1, [2]),
    defaultdict(list, k=[1])], ids=repr)
def test_trees_are_taken_apart_and_put_together(nested):
    leaves, spec = tree.tree_flatten(nested)
    assert tree.tree_unflatten(leaves, spec) == nested
    assert spec.num_leaves == len(tree.tree_leaves(nested)) == len(leaves)
    assert tree.tree_structure(nested) == spec
    assert spec.is_leaf() == (nested == 3)


def test_functions_of_leaves():
    nested = {"a": 1, "b": [2.0, 3]}
    assert tree.tree_map(lambda x, y: x + y, nested, nested) == {"a": 2, "b": [4, 6]}
    assert tree.tree_map_only(float, lambda x: -x, nested) == {"a": 1, "b": [-2, 3]}
    assert tree.tree_all(bool, nested) and not tree.tree_any(lambda x: x > 3, nested)
    with pytest.raises(ValueError, match="has length 1 but the spec refers to"):
        tree.tree_unflatten([1], tree.tree_structure(nested))


def test_other_classes_are_registered_as_nodes():
    class Box:
        def __init__(self, x):
            self.x = x

    tree.register_pytree_node(Box, lambda b: ([b.x], None), lambda parts, _: Box(*parts))
    assert tree.tree_map(lambda x: x + 1, Box(1)).x == 2


class Counted(nn.Module):
    """A module with state beside its parameters."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))
        self.n = 0

    def get_extra_state(self):
        return {"n": self.n}

    def set_extra_state(self, state):
        self.n = state["n"]


def test_extra_state_goes_with_the_parameters():
    one, two = nn.Sequential(Counted()), nn.Sequential(Counted())
    one[0].n = 5
    assert two.load_state_dict(one.state_dict()).missing_keys == []
    assert two[0].n == 5
    assert two.load_state_dict({}, strict=False).missing_keys == ["0._extra_state", "0.w"]
    with pytest.raises(RuntimeError, match="should never be called"):
        nn.Linear(1, 1).get_extra_state()
    with pytest.raises(RuntimeError, match="should never be called"):
        nn.Linear(1, 1).set_extra_state({})


def test_hooks_are_called_around_state_dicts():
    model, calls = nn.Sequential(nn.Linear(1, 1)), []
    model[0].register_state_dict_pre_hook(lambda m, prefix, keep: calls.append(prefix))
    model.register_state_dict_post_hook(lambda m, state, prefix, meta: state.pop("0.bias") and None)
    state = model.state_dict()
    assert calls == ["0."] and list(state) == ["0.weight"]
    model[0]._register_load_state_dict_pre_hook(
        lambda state, prefix, *rest: state.update({prefix + "bias": torch.full((1,), 7.0)}))
    model.register_load_state_dict_post_hook(lambda m, keys: calls.append(keys.missing_keys))
    model.load_state_dict(state)
    assert model[0].bias.item() == 7 and calls == ["0.", []]


def test_a_submodule_is_put_in_the_place_of_another():
    model = nn.Sequential(nn.Sequential(nn.Linear(1, 1)))
    model.set_submodule("0.0", nn.ReLU())
    assert isinstance(model[0][0], nn.ReLU)
    with pytest.raises(ValueError, match=r"is not an nn\.Module, found int"):
        model.set_submodule("0.0", 3)
    with pytest.raises(AttributeError, match="has no attribute `9`"):
        model.set_submodule("0.9", nn.ReLU(), strict=True)
    assert model.share_memory() is model and model.compile() is None
    assert nn.Linear(2, 1).to_empty(device="cpu").weight.shape == (1, 2)


@pytest.mark.parametrize("pair", [
    (nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)), (nn.Conv1d(2, 3, 1, bias=False), nn.BatchNorm1d(3))],
    ids=["images", "lines"])
def test_a_convolution_takes_the_normalisation_after_it(pair):
    conv, norm = pair
    norm.running_mean += 1.0
    norm.running_var *= 2.0
    conv.eval()
    norm.eval()
    x = torch.arange(18.0).reshape(1, 2, *((3, 3) if conv.weight.dim() == 4 else (9,)))
    fused = nn.utils.fuse_conv_bn_eval(conv, norm)
    torch.testing.assert_close(fused(x), norm(conv(x)), rtol=1e-5, atol=1e-5)
    with pytest.raises(AssertionError, match="Fusion only for eval"):
        nn.utils.fuse_conv_bn_eval(conv.train(), norm)


def test_a_linear_map_takes_the_normalisation_after_it():
    linear, norm = nn.Linear(2, 3).eval(), nn.BatchNorm1d(3).eval()
    norm.running_mean -= 1.0
    x = torch.arange(4.0).reshape(2, 2)
    fused = nn.utils.fuse_linear_bn_eval(linear, norm)
    torch.testing.assert_close(fused(x), norm(linear(x)), rtol=1e-5, atol=1e-5)


def test_memory_is_shared_with_other_libraries():
    a = np.arange(3.0)
    t = torch.from_dlpack(a)
    assert torch.from_dlpack(t) is t and t.tolist() == [0, 1, 2]
    assert np.from_dlpack(torch.arange(2)).tolist() == [0, 1]
    assert type(torch.to_dlpack(t)).__name__ == "PyCapsule"
    with pytest.raises(BufferError, match="require gradient"):
        np.from_dlpack(torch.ones(1, requires_grad=True))


def test_entries_are_found_and_reversed():
    x = torch.arange(3)
    assert 2 in x and 5 not in x
    assert [v.item() for v in reversed(x)] == [2, 1, 0]
    with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
        "a" in x  # noqa: B015  # it is the error that is wanted


def test_what_there_is_no_other_device_for_is_answered():
    assert torch.accelerator.device_count() == 0
    assert not torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() is None
    assert not torch.backends.mps.is_available() and not torch.backends.mkldnn.is_available()
    assert not torch.backends.cuda.is_built()
    torch.backends.cuda.enable_flash_sdp(True)
    assert not torch.compiler.is_compiling() and torch.compiler.reset() is None
    assert torch.compiler.disable(len) is len and torch.compiler.disable()(len) is len
    assert torch.compiler.allow_in_graph(len) is len
    torch.set_default_device("cpu")
    torch.set_num_interop_threads(1)
    torch.set_warn_always(True)
    torch.set_deterministic_debug_mode(0)
    torch.clear_autocast_cache()
    assert torch.get_num_interop_threads() == 1 and torch.is_warn_always_enabled()
    assert torch.get_device(torch.ones(1)) == -1 and torch.get_deterministic_debug_mode() == 0
    assert not torch.is_autocast_enabled()
    assert torch.overrides.is_tensor_like(torch.ones(1))
    assert not torch.overrides.has_torch_function(())
    assert not torch.overrides.has_torch_function_variadic(1)
    assert torch.jit.freeze(len) is torch.jit.annotate(int, len) is len
    with sdpa_kernel(SDPBackend.MATH):
        assert nn.DataParallel(nn.Identity())(3) == 3


def test_files_need_no_classes_that_are_safe():
    torch.serialization.add_safe_globals([int])
    with torch.serialization.safe_globals([int]):
        assert torch.serialization.get_safe_globals() == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_tensors_of_random_numbers_for_tests(dtype):
    x = torch.testing.make_tensor(3, 4, dtype=dtype, noncontiguous=True, exclude_zero=True)
    assert x.shape == (3, 4) and x.dtype == dtype and not x.is_contiguous()
    assert (x != 0).all()


def test_normalisations_without_running_statistics():
    norm = torch.func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))[0]
    assert norm.running_mean is None and not norm.track_running_stats
    assert nn.utils.skip_init(nn.Linear, 2, 1).weight.shape == (1, 2)


def test_memory_whose_order_is_given_is_in_row_order():
    assert torch.empty_permuted((2, 3), (1, 0)).shape == (2, 3)
    assert torch.ones(1).new_empty_strided((2, 3), (1, 2)).shape == (2, 3)


def test_norms_of_entries_but_along_one_dimension_of_a_vector_are_those_of_its_entries():
    v = torch.tensor([3.0, -4.0])
    assert torch.norm_except_dim(v).tolist() == [3.0, 4.0]
    assert torch.norm_except_dim(v, 2, -1).item() == 5.0


def test_functions_in_torchs_order_refuse_more_arguments_than_they_have():
    x = torch.ones(2)
    with pytest.raises(TypeError, match=r"kl_div\(\) takes 3 positional arguments but 4 were"):
        torch.kl_div(x, x, 1, True)


ONES = torch.ones(2)


@pytest.mark.parametrize("make", [
    lambda **o: torch.scalar_tensor(1, **o), lambda **o: torch.range(0, 2, **o),
    lambda **o: torch.empty_strided((2,), (1,), **o), lambda **o: torch.tril_indices(2, 2, **o),
    lambda **o: torch.triu_indices(2, 2, **o), lambda **o: torch.fft.fftfreq(4, **o),
    lambda **o: torch.randint_like(ONES, 3, **o), lambda **o: torch.hann_window(4, **o),
    lambda **o: ONES.new_full((2,), 3, **o), lambda **o: torch.zeros_like(ONES, **o),
])
def test_a_factory_takes_the_options_of_all_and_no_others(make):
    assert make(dtype=torch.float64, device="cpu", pin_memory=False).dtype is torch.float64
    assert make(dtype=torch.float64, requires_grad=True).requires_grad
    out = torch.empty(0, dtype=torch.float64)
    assert make(out=out) is out and out.numel()
    with pytest.raises(TypeError, match="unexpected keyword argument 'size_'"):
        make(size_=3)
    with pytest.raises(AssertionError, match="no device 'cuda'"):
        make(device="cuda")
