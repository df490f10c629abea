"""What is refused begins with PyTorch's own sentence, and is of its type."""

import pickle

import pytest

import functrans.torch as torch
from functrans.torch import nn

T = torch.tensor
one = torch.ones
F = nn.functional
EXPECTED = "Expected size for first two dimensions of batch2 tensor to be: "
EMPTY = ("Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
         "with the 'dim' argument.")

# as PyTorch 2.15 has them; ours may go on
SENTENCES = [
    (lambda: one(2, 3) @ one(2, 3), RuntimeError,
     "mm: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
    (lambda: one(2) @ one(3, 2), RuntimeError,
     "mm: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x2)"),
    (lambda: one(2, 3) @ one(2), RuntimeError, "size mismatch, got input (2), mat (2x3), vec (2)"),
    (lambda: one(2, 2, 3) @ one(2, 2, 3), RuntimeError, EXPECTED + "[2, 3] but got: [2, 2]."),
    (lambda: one(3, 2, 3) @ one(2, 3, 2), RuntimeError,
     "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0"),
    (lambda: torch.bmm(one(1, 2, 3), one(2, 3, 3)), RuntimeError,
     EXPECTED + "[1, 3] but got: [2, 3]."),
    (lambda: torch.bmm(one(2, 2), one(2, 2)), RuntimeError, "batch1 must be a 3D tensor"),
    (lambda: one(2, 3).mm(one(2)), RuntimeError, "mm: mat2 must be a matrix, got 1-D tensor"),
    (lambda: torch.addmm(one(2, 2), one(2, 3), one(2, 3)), RuntimeError,
     "addmm: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
    (lambda: nn.Linear(3, 2)(one(4)), RuntimeError,
     "addmm: mat1 and mat2 shapes cannot be multiplied (1x4 and 3x2)"),
    (lambda: F.linear(one(2, 4), one(2, 3)), RuntimeError,
     "mm: mat1 and mat2 shapes cannot be multiplied (2x4 and 3x2)"),
    (lambda: torch.outer(one(2, 2), one(2)), RuntimeError,
     "outer: Expected 1-D argument self, but got 2-D"),
    (lambda: F.mse_loss(one(2), one(3)), RuntimeError,
     "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0"),
    (lambda: torch.cat([]), ValueError, "torch.cat(): expected a non-empty list of Tensors"),
    (lambda: torch.stack([]), RuntimeError, "stack expects a non-empty TensorList"),
    (lambda: torch.cat([one(2), 1.0]), TypeError,
     "expected Tensor as element 1 in argument 0, but got float"),
    (lambda: torch.cat(one(2)), TypeError,
     "cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"),
    (lambda: torch.stack([one(2), one(3)]), RuntimeError,
     "stack expects each tensor to be equal size, but got [2] at entry 0 and [3] at entry 1"),
    (lambda: one(2)[0, 0], IndexError, "too many indices for tensor of dimension 1"),
    (lambda: one(2)[1.5], IndexError, "only integers, slices (`:`), ellipsis (`...`), None and "
     "long or byte Variables are valid indices"),
    (lambda: one(2, 2).repeat(2), RuntimeError, "Number of dimensions of repeat dims can not be "
     "smaller than number of dimensions of tensor"),
    (lambda: one(6).view(-1, -1), RuntimeError, "only one dimension can be inferred"),
    (lambda: one(2).gather(0, one(2)), RuntimeError, "gather(): Expected dtype int32/int64"),
    (lambda: one(2, 3).gather(0, T([0])), RuntimeError,
     "Index tensor must have the same number of dimensions as input tensor"),
    (lambda: one(2).masked_fill(one(2), 0), RuntimeError,
     "masked_fill_ only supports boolean masks, but got mask with dtype float"),
    (lambda: one(0).max(), RuntimeError, "max(): " + EMPTY),
    (lambda: one(0).argmax(), IndexError, "argmax(): Expected reduction dim to be specified"),
    (lambda: one(0).min(0), IndexError, "min(): Expected reduction dim 0 to have non-zero size."),
    (lambda: one(0).amax(), IndexError, "amax(): " + EMPTY),
    (lambda: one(2).topk(3), RuntimeError, "selected index k out of range"),
    (lambda: torch.eye(-1), RuntimeError, "n must be greater or equal to 0, got -1"),
    (lambda: torch.linspace(0, 1, -1), RuntimeError, "number of steps must be non-negative"),
    (lambda: torch.normal(0.0, -1.0, (2,)), RuntimeError,
     "normal expects std >= 0.0, but found std -1"),
    (lambda: T([[1, 2], [3]]), ValueError, "expected sequence of length 2 at dim 1 (got 1)"),
    (lambda: T([[[1], [2]], [[1], [2, 3]]]), ValueError,
     "expected sequence of length 1 at dim 2 (got 2)"),
    (lambda: T("a"), TypeError, "new(): invalid data type 'str'"),
    (lambda: one(2).long().div_(2), RuntimeError,
     "result type Float can't be cast to the desired output type Long"),
    (lambda: torch.set_default_dtype(torch.int32), TypeError,
     "only floating-point types are supported as the default type"),
    (lambda: one(2, 2, 2).H, RuntimeError,
     "tensor.H is only supported on matrices (2-D tensors). Got 3-D tensor."),
    (lambda: torch.sin(1.0), TypeError, "sin(): argument 'input' (position 1) must be Tensor, not "
     "float"),
    (lambda: torch.softmax([1.0], 0), TypeError,
     "softmax(): argument 'input' (position 1) must be Tensor, not list"),
    (lambda: torch.sum([1.0]), TypeError,
     "sum(): argument 'input' (position 1) must be Tensor, not list"),
    (lambda: torch.matmul([1.0], one(1)), TypeError,
     "matmul(): argument 'input' (position 1) must be Tensor, not list"),
    (lambda: torch.add(one(1), "a"), TypeError,
     "add(): argument 'other' (position 2) must be Tensor, not str"),
]


@pytest.mark.parametrize("i", range(len(SENTENCES)))
def test_an_error_begins_with_the_sentence_of_torch(i):
    call, error, sentence = SENTENCES[i]
    with pytest.raises(error) as failure:
        call()
    assert str(failure.value).startswith(sentence)


NAMED = {
    "max": (lambda: T([[1.0, 2.0]]).max(1),
            "torch.return_types.max(\nvalues=tensor([2.]),\nindices=tensor([1]))"),
    "sort": (lambda: T([2, 1]).sort(),
             "torch.return_types.sort(\nvalues=tensor([1, 2]),\nindices=tensor([1, 0]))"),
    "slogdet": (lambda: torch.linalg.slogdet(torch.eye(2)),
                "torch.return_types.linalg_slogdet(\nsign=tensor(1.),\nlogabsdet=tensor(0.))"),
    "eigh": (lambda: torch.linalg.eigh(2 * torch.eye(1)), "torch.return_types.linalg_eigh(\n"
             "eigenvalues=tensor([2.]),\neigenvectors=tensor([[1.]]))"),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_results_are_shown_as_torch_shows_them(name):
    call, shown = NAMED[name]
    assert repr(call()) == shown


def test_named_results_are_tuples_that_are_pickled():
    found = T([1.0, 3.0]).max(0)
    value, index = found
    assert found.values is value and found[1] is index
    again = pickle.loads(pickle.dumps(found))
    assert again.values.item() == 3.0 and type(again) is type(found)


SHOWN = {
    "Dropout(p=0.2, inplace=False)": nn.Dropout(0.2), "ReLU()": nn.ReLU(),
    "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)": nn.MaxPool2d(2),
    "AvgPool1d(kernel_size=2, stride=2, padding=0)": nn.AvgPool1d(2),
    "CrossEntropyLoss()": nn.CrossEntropyLoss(), "PReLU(num_parameters=1)": nn.PReLU(),
    "LayerNorm((3,), eps=1e-05, elementwise_affine=True, bias=True)": nn.LayerNorm(3),
    "Bilinear(in1_features=1, in2_features=2, out_features=3, bias=True)": nn.Bilinear(1, 2, 3),
    "Unflatten(dim=1, unflattened_size=(2, 2))": nn.Unflatten(1, (2, 2)),
    "CosineSimilarity()": nn.CosineSimilarity(),
    "GroupNorm(1, 2, eps=1e-05, affine=True, bias=True)": nn.GroupNorm(1, 2),
}


@pytest.mark.parametrize("text", SHOWN)
def test_layers_are_shown_as_torch_shows_them(text):
    assert repr(SHOWN[text]) == text


def test_a_number_is_formatted_as_a_number():
    loss = T(0.25, requires_grad=True)
    assert f"{loss} {loss:.1f} {T(3)} {T([1.0])}" == "0.25 0.2 3 tensor([1.])"
    with pytest.raises(TypeError, match="unsupported format string passed to Tensor"):
        f"{T([1.0]):.2f}"
