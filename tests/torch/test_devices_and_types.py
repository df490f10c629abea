"""Devices, limits of types, older names of types, memory, and the comparison of tensors."""

import copy
import pickle
import warnings

import pytest

import functrans.torch as torch


def test_tensors_are_on_the_cpu():
    x = torch.ones(2, device=torch.device("cpu"))
    assert x.device == torch.device("cpu") and str(x.device) == "cpu" and not x.is_cuda
    assert x.to(torch.device("cpu")) is x and x.get_device() == -1
    assert torch.get_default_device() == x.device


def test_a_device_is_a_name():
    d = torch.device("cuda:1")
    assert (d.type, d.index, repr(d)) == ("cuda", 1, "device(type='cuda', index=1)")
    assert d == torch.device("cuda", 1) == torch.device(d) and d != torch.device("cuda")
    assert torch.device(1) == d and len({d, torch.device("cuda:1")}) == 1
    assert pickle.loads(pickle.dumps(d)) == d == copy.deepcopy(d)


def test_a_device_that_is_not_there_is_refused_by_name():
    with pytest.raises(RuntimeError, match=r"no device 'cuda:0' here"):
        torch.ones(2, device=torch.device("cuda", 0))
    with pytest.raises(RuntimeError, match="at start of device string: banana"):
        torch.device("banana")
    with pytest.raises(RuntimeError, match=r"Invalid device string: 'cuda:x'"):
        torch.device("cuda:x")
    with pytest.raises(TypeError, match="name is a str, but got float"):
        torch.device(1.5)
    with pytest.raises(AttributeError, match="cannot be set"):
        torch.device("cpu").type = "cuda"


def test_cuda_says_that_it_is_not_there():
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    torch.cuda.manual_seed_all(3)
    torch.cuda.empty_cache()
    with pytest.raises(AssertionError, match=r"Torch not compiled with CUDA enabled: cuda\.s"):
        torch.cuda.synchronize()


def test_limits_of_types():
    f = torch.finfo(torch.float32)
    assert (f.bits, f.eps, f.max) == (32, 2.0**-23, 3.4028234663852886e38)
    assert f.tiny == f.smallest_normal == 2.0**-126 and f.min == -f.max and f.dtype == "float32"
    assert torch.finfo().dtype == "float32" and torch.finfo(torch.bfloat16).eps == 2.0**-7
    assert torch.finfo(torch.complex128) == torch.finfo(torch.float64)
    i = torch.iinfo(torch.int16)
    assert (i.bits, i.min, i.max, repr(i)) == (16, -32768, 32767, "iinfo(min=-32768, max=32767, "
                                               "dtype=int16)")
    with pytest.raises(TypeError, match=r"Use torch\.iinfo"):
        torch.finfo(torch.int64)
    with pytest.raises(TypeError, match=r"Use torch\.finfo"):
        torch.iinfo(torch.float32)


def test_types_have_older_names():
    x = torch.ones(2, 3)
    assert isinstance(x, torch.FloatTensor) and not isinstance(x, torch.DoubleTensor)
    assert x.type() == "torch.FloatTensor" and torch.typename(x) == "torch.FloatTensor"
    assert x.type(torch.DoubleTensor).dtype is torch.float64
    assert x.type("torch.LongTensor").dtype is x.type(torch.int64).dtype is torch.int64
    assert x.type(torch.float32) is x
    assert torch.BoolTensor.dtype is torch.bool and repr(torch.IntTensor) == (
        "<class 'torch.IntTensor'>")
    with pytest.raises(ValueError, match="invalid type: 'FloatTensor'"):
        x.type("FloatTensor")


def test_types_make_tensors():
    assert torch.LongTensor([1, 2]).tolist() == [1, 2]
    assert torch.DoubleTensor(2, 3).shape == (2, 3) and torch.FloatTensor().shape == (0,)
    assert torch.ByteTensor(torch.Size([4])).shape == (4,)
    x = torch.ones(2, dtype=torch.float64)
    assert x.new([1, 2]).dtype is torch.float64 and x.new(3).shape == (3,)
    assert torch.DoubleTensor(x).data_ptr() == x.data_ptr()
    with pytest.raises(TypeError, match=r"expected torch.FloatTensor \(got torch.DoubleTensor\)"):
        torch.FloatTensor(x)
    with pytest.raises(TypeError, match="a shape is given as lengths"):
        torch.FloatTensor([1.0], [2.0])


def test_the_default_type_by_its_older_name():
    before = torch.get_default_dtype()
    try:
        torch.set_default_tensor_type(torch.DoubleTensor)
        assert torch.ones(1).dtype is torch.float64
        torch.set_default_tensor_type("torch.HalfTensor")
        assert torch.ones(1).dtype is torch.float16
    finally:
        torch.set_default_dtype(before)


def test_tensors_say_what_they_are():
    x = torch.ones(2, 3)
    assert torch.is_floating_point(x) and not torch.is_complex(x) and x.is_signed()
    assert x.is_contiguous(memory_format=torch.contiguous_format) and x.names == (None, None)
    assert not (x.is_conj() or x.is_neg() or x.is_pinned() or x.has_names() or x.is_quantized)
    assert x.is_same_size(torch.zeros(2, 3)) and torch.is_nonzero(torch.tensor([2]))
    assert x.is_set_to(x[:]) and not x.is_set_to(x[:1]) and x[:1]._is_view()
    assert torch.can_cast(torch.int32, torch.float16)
    assert not torch.can_cast(torch.float16, torch.int32) and not torch.is_storage(x)
    with pytest.warns(UserWarning, match="volatile was removed"):
        assert not x.volatile
    memory = x[1:].storage()
    assert (len(memory), memory.nbytes(), memory.data_ptr()) == (6, 24, x.data_ptr())


def test_numbers_are_read_under_no_grad():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert x.numpy().tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        x.numpy()


def test_a_tensor_is_resized():
    x = torch.arange(6)
    assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]] and x.resize_(5).tolist()[:4] == [
        0, 1, 2, 3]
    assert x.resize_as_(torch.ones(1, 2)).shape == (1, 2)
    with pytest.warns(UserWarning, match="non-inplace resize is deprecated"):
        assert torch.ones(2, 3).resize(3, 2).shape == (3, 2)
    with pytest.warns(UserWarning, match="non-inplace resize_as is deprecated"):
        assert torch.ones(2, 3).resize_as(torch.ones(6)).shape == (6,)
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        torch.ones(1, requires_grad=True).resize_(2)


def test_a_tensor_is_set_on_the_memory_of_another():
    x, y = torch.zeros(2), torch.ones(3)
    x.set_(y)
    y[0] = 5.0
    assert x.tolist() == [5.0, 1.0, 1.0] and x._version == y._version
    assert x.set_().shape == (0,)
    with pytest.raises(NotImplementedError, match="there are no storages"):
        x.set_(y, 0, (2,))
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(1, requires_grad=True).set_(y)


def test_a_python_function_is_applied_in_place():
    x = torch.tensor([1.0, 4.0])
    assert x.apply_(lambda v: v + 0.5).tolist() == [1.5, 4.5] and x._version == 1
    with pytest.raises(RuntimeError, match="cannot be recorded"):
        torch.ones(1, requires_grad=True).apply_(abs)


def test_where_a_tensor_is_already_it_stays():
    x = torch.ones(2)
    assert x.pin_memory() is x.share_memory_() is x.resolve_neg() is x


def test_close_tensors_are_close():
    close = torch.testing.assert_close
    close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 1e-7]))
    close({"a": [1.0, torch.ones(2)]}, {"a": [1.0, torch.ones(2)]})
    close(torch.tensor([float("nan")]), torch.tensor([float("nan")]), equal_nan=True)
    close(torch.ones(1), torch.ones(1).double(), check_dtype=False)
    close(torch.ones(1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.bfloat16))
    for a, b, text in [
        (torch.ones(2), torch.tensor([1.0, 1.1]), r"not close! 1 of 2 entries differ.*\(1,\)"),
        (torch.ones(2), torch.ones(3), "'shape' do not match"),
        (torch.ones(2), torch.ones(2).double(), "'dtype' do not match"),
        ([1.0], [1.0, 2.0], "length of the sequences"), ({"a": 1}, {"b": 1}, "keys of the mapp"),
    ]:
        with pytest.raises(AssertionError, match=text):
            close(a, b)
    with pytest.raises(AssertionError, match="'stride"):
        close(torch.ones(2, 3).t(), torch.ones(3, 2), check_stride=True)
    with pytest.raises(ValueError, match="both be specified"):
        close(1.0, 1.0, rtol=0.1)
    with pytest.warns(FutureWarning, match="assert_allclose"):
        torch.testing.assert_allclose(torch.ones(1), torch.ones(1).double())


def test_printing_has_options():
    x = torch.tensor([1.0 / 3, 2.0])
    try:
        torch.set_printoptions(precision=2)
        assert repr(x) == "tensor([0.33, 2.00])"
        torch.set_printoptions(profile="default", sci_mode=True)
        assert repr(x) == "tensor([3.3333e-01, 2.0000e+00])"
        torch.set_printoptions(threshold=1, edgeitems=1)
        assert repr(torch.arange(5)) == "tensor([0,  ..., 4])"
        with pytest.raises(ValueError, match="no profile 'huge'"):
            torch.set_printoptions(profile="huge")
    finally:
        torch.set_printoptions(profile="default")
    assert repr(x) == "tensor([0.3333, 2.0000])"


def test_random_numbers_start_anywhere():
    assert torch.seed() != torch.seed()
    torch.manual_seed(0)


def test_sparse_tensors_have_older_constructors():
    with warnings.catch_warnings():
        s = torch.sparse.DoubleTensor(torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]), (3,))
    assert s.dtype is torch.float64 and torch.sparse.sum(s).item() == 3.0
    assert torch.sparse.sum(s, 0).item() == 3.0
    assert torch.sparse.FloatTensor([[1]], [4.0]).to_dense().tolist() == [0.0, 4.0]


@pytest.mark.parametrize("constant", [torch.strided, torch.sparse_coo, torch.channels_last,
                                      torch.preserve_format, torch.float32], ids=repr)
def test_constants_are_the_same_after_copying(constant):
    assert pickle.loads(pickle.dumps(constant)) is constant is copy.deepcopy(constant)
