"""What layers with computed weights, unknown sizes or packed input refuse, and how they print."""

import copy

import pytest

from functrans import torch
from functrans.torch import nn, optim
from functrans.torch.distributions import (
    Categorical,
    MixtureSameFamily,
    Normal,
    TransformedDistribution,
)
from functrans.torch.nn.utils import parametrizations, parametrize, rnn
from functrans.torch.optim import lr_scheduler, swa_utils


class Halved(nn.Module):
    def forward(self, x):
        return x / 2


class Cut(nn.Module):
    def forward(self, x):
        return x[:1]


def optimizer(kind=optim.SGD, **options):
    return kind([torch.zeros(1, requires_grad=True)], lr=0.1, **options)


def without_inverse():
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Halved())
    layer.weight = torch.ones(2, 2)


def twice():
    with pytest.warns(FutureWarning, match="is deprecated in favor of"):
        layer = nn.utils.weight_norm(nn.Linear(2, 2))
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(layer)


def past_the_end():
    rates = lr_scheduler.OneCycleLR(optimizer(momentum=0.9), 0.1, total_steps=2)
    for _ in range(4):
        rates.step()


REFUSED = {
    "weights normed twice": (twice, "Cannot register two WeightNorm hooks on the same parameter"),
    "no norm to remove": (lambda: nn.utils.remove_weight_norm(nn.Linear(1, 1)),
                          "weight_norm of 'weight' not found"),
    "no spectral norm": (lambda: nn.utils.remove_spectral_norm(nn.Linear(1, 1)),
                         "spectral_norm of 'weight' not found"),
    "no iterations": (lambda: nn.utils.spectral_norm(nn.Linear(1, 1), n_power_iterations=0),
                      "Expected n_power_iterations to be positive"),
    "no iterations of a part": (
        lambda: parametrizations.spectral_norm(nn.Linear(1, 1), n_power_iterations=0),
        "Expected n_power_iterations to be positive"),
    "no such parameter": (
        lambda: parametrize.register_parametrization(nn.Linear(1, 1), "mass", Halved()),
        "does not have a parameter, a buffer, or a parametrized element with name 'mass'"),
    "another shape": (
        lambda: parametrize.register_parametrization(nn.Linear(1, 2), "weight", Cut()),
        "A parametrization may not change the shape of a tensor"),
    "no right inverse": (without_inverse, "parametrization Halved does not implement right_inv"),
    "nothing parametrised": (
        lambda: parametrize.remove_parametrizations(nn.Linear(1, 1), "weight"),
        "does not have a parametrization on weight"),
    "several originals": (
        lambda: parametrize.remove_parametrizations(
            parametrizations.weight_norm(nn.Linear(1, 1)), "weight", leave_parametrized=False),
        "Cannot leave unparametrized"),
    "the shape of what is lazy": (lambda: nn.LazyLinear(2).weight.shape,
                                  "Can't access the shape of an uninitialized parameter"),
    "too few lengths": (lambda: rnn.pack_padded_sequence(torch.ones(2, 3, 1), [2]),
                        "Expected `len\\(lengths\\)` to be equal to batch_size"),
    "an empty sequence": (lambda: rnn.pack_padded_sequence(torch.ones(2, 2, 1), [2, 0]),
                          "Length of all samples has to be greater than 0"),
    "lengths without order": (lambda: rnn.pack_padded_sequence(torch.ones(2, 2, 1), [1, 2]),
                              "must be sorted in decreasing order"),
    "too short": (lambda: rnn.pad_packed_sequence(rnn.pack_sequence([torch.ones(2)]),
                                                  total_length=1),
                  "Expected total_length to be at least the length of the longest sequence"),
    "another width": (lambda: nn.Transformer(4, 2, 1, 1, 4)(torch.ones(1, 1, 3),
                                                            torch.ones(1, 1, 4)),
                      "the feature number of src and tgt must be equal to d_model"),
    "two averages": (lambda: swa_utils.AveragedModel(nn.Linear(1, 1), avg_fn=max, multi_avg_fn=max),
                     "Only one of avg_fn and multi_avg_fn should be provided"),
    "a decay above one": (lambda: swa_utils.get_ema_avg_fn(2.0), "Invalid decay value 2.0"),
    "etas": (lambda: optimizer(optim.Rprop, etas=(2.0, 3.0)), "Invalid eta values: 2.0, 3.0"),
    "a factor": (lambda: lr_scheduler.ConstantLR(optimizer(), 2.0), "Constant multiplicative"),
    "no cycle": (lambda: lr_scheduler.CosineAnnealingWarmRestarts(optimizer(), 0),
                 "Expected positive integer T_0"),
    "no longer cycle": (lambda: lr_scheduler.CosineAnnealingWarmRestarts(optimizer(), 1, 0),
                        "Expected integer T_mult >= 1"),
    "milestones": (lambda: lr_scheduler.SequentialLR(optimizer(), [], [1]),
                   "expects number of schedulers provided to be one more"),
    "no momentum": (lambda: lr_scheduler.CyclicLR(optimizer(optim.Adagrad), 0.1, 1.0),
                    "optimizer must support momentum or beta1"),
    "modes": (lambda: lr_scheduler.CyclicLR(optimizer(), 0.1, 1.0, mode="square"),
              "mode is invalid and scale_fn is None"),
    "rates of groups": (lambda: lr_scheduler.OneCycleLR(optimizer(), [0.1, 0.2], total_steps=3),
                        "max_lr must have the same length as optimizer.param_groups"),
    "no number of steps": (lambda: lr_scheduler.OneCycleLR(optimizer(), 0.1),
                           "You must define either total_steps OR"),
    "annealing": (lambda: lr_scheduler.OneCycleLR(optimizer(), 0.1, 3, anneal_strategy="square"),
                  "anneal_strategy must be one of 'cos' or 'linear'"),
    "past the end": (past_the_end, "Tried to step 3 times"),
    "no transform": (lambda: TransformedDistribution(Normal(0.0, 1.0), [torch.exp]),
                     "transforms must be a Transform or a list of Transforms"),
    "no mixture": (lambda: MixtureSameFamily(Normal(0.0, 1.0), Normal(0.0, 1.0)),
                   "The Mixture distribution needs to be an instance"),
    "no components": (lambda: MixtureSameFamily(Categorical(torch.ones(2)), 1),
                      "The Component distribution need to be an instance"),
    "other components": (
        lambda: MixtureSameFamily(Categorical(torch.ones(2)), Normal(torch.zeros(3), 1.0)),
        "does not equal `component_distribution.batch_shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_layer_cannot_be_given_is_refused(case):
    call, text = REFUSED[case]
    with pytest.raises((ValueError, RuntimeError, AssertionError), match=text):
        call()


def test_layers_print_as_torchs_do():
    assert repr(nn.LazyLinear(3)) == "LazyLinear(in_features=0, out_features=3, bias=True)"
    assert repr(nn.LSTM(2, 3, 2, batch_first=True)) == (
        "LSTM(2, 3, num_layers=2, batch_first=True)")
    assert repr(nn.ModuleList([nn.Tanh(), nn.Tanh(), nn.ReLU()])) == (
        "ModuleList(\n  (0-1): 2 x Tanh()\n  (2): ReLU()\n)")
    assert repr(nn.Embedding(3, 4, padding_idx=0)) == "Embedding(3, 4, padding_idx=0)"


def test_what_replaces_a_part_has_its_place():
    net = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    setattr(net, "0", nn.Tanh())
    assert [type(m) for m in net] == [nn.Tanh, nn.ReLU]


def test_a_lazy_layer_is_copied_and_keeps_its_type():
    lazy = copy.deepcopy(nn.LazyLinear(2).double())
    assert lazy(torch.ones(1, 3, dtype=torch.float64)).shape == (1, 2)
    assert type(lazy) is nn.Linear and lazy.weight.dtype is torch.float64


def test_a_spectral_norm_is_removed_with_the_weight_that_it_gave():
    layer = nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=50)
    layer.eval()
    before = layer(torch.eye(2))
    nn.utils.remove_spectral_norm(layer)
    assert torch.equal(layer(torch.eye(2)), before) and len(list(layer.parameters())) == 2


def test_a_parametrised_parameter_is_left_as_it_was():
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Halved())
    weight = layer.parametrizations.weight.original
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is weight and type(layer) is nn.Linear


@pytest.mark.parametrize("make", [
    lambda **on: nn.Conv2d(1, 1, 1, **on), lambda **on: nn.Embedding(2, 2, **on),
    lambda **on: nn.BatchNorm1d(2, **on), lambda **on: nn.LayerNorm(2, **on),
    lambda **on: nn.LSTM(2, 2, **on), lambda **on: nn.GRUCell(2, 2, **on),
    lambda **on: nn.MultiheadAttention(2, 1, **on), lambda **on: nn.Transformer(2, 1, **on),
    lambda **on: nn.AdaptiveLogSoftmaxWithLoss(8, 4, [2], **on), lambda **on: nn.PReLU(**on)])
def test_layers_are_made_on_the_device_they_are_told_or_not_at_all(make):
    assert {p.device.type for p in make(device="cpu").parameters()} == {"cpu"}
    with pytest.raises(AssertionError, match="there is no device 'cuda'"):
        make(device="cuda")


def test_a_bilinear_layer_draws_its_parameters_again():
    layer = nn.Bilinear(4, 2, 3)
    before = layer.weight.detach().clone()
    layer.reset_parameters()
    assert not torch.equal(layer.weight, before) and float(layer.weight.abs().max()) <= 0.5


@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 0), lambda: nn.Linear(0, 2),
                                  lambda: nn.Conv1d(1, 1, 0)])
def test_layers_without_weights_say_that_there_is_nothing_to_draw(make):
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        assert make().weight.numel() == 0
