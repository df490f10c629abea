"""Optimisers: options that groups show, hooks around steps and states, rates of averages."""

import pytest

from functrans import torch
from functrans.torch.optim import lbfgs
from functrans.torch.optim.swa_utils import SWALR, AveragedModel, get_swa_multi_avg_fn


def parameter(value=1.0):
    p = torch.nn.Parameter(torch.tensor([value]))
    p.grad = torch.ones(1)
    return p


def test_groups_show_the_options_of_other_devices():
    sgd = torch.optim.SGD([parameter()], lr=0.5, foreach=True)
    assert sgd.state_dict()["param_groups"] == [{
        "lr": 0.5, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False,
        "maximize": False, "foreach": True, "differentiable": False, "fused": None, "params": [0]}]


def test_decay_of_adam_is_decoupled_on_request():
    p, q = parameter(), parameter()
    torch.optim.Adam([p], weight_decay=0.1, decoupled_weight_decay=True).step()
    torch.optim.AdamW([q], weight_decay=0.1).step()
    assert p.item() == q.item()


def test_hooks_are_called_around_a_step():
    seen = []
    sgd = torch.optim.SGD([parameter()], lr=0.5)
    before = sgd.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    sgd.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
    sgd.step()
    before.remove()
    sgd.step()
    assert seen == ["before", "after", "after"]


def test_hooks_reach_the_step_of_a_class_of_the_user():
    class Fixed(torch.optim.Optimizer):
        def step(self, closure=None):
            return closure()

    fixed = Fixed([parameter()], {})
    fixed.register_step_pre_hook(lambda o, args, kwargs: ((lambda: 3,), {}))
    assert fixed.step(lambda: 2) == 3


def test_hooks_change_states():
    sgd = torch.optim.SGD([parameter()], lr=0.5)
    sgd.register_state_dict_pre_hook(lambda o: None)
    sgd.register_state_dict_post_hook(lambda o, saved: {**saved, "note": 1})
    saved = sgd.state_dict()
    assert saved["note"] == 1
    calls = []
    sgd.register_load_state_dict_pre_hook(lambda o, saved: calls.append("first"))
    sgd.register_load_state_dict_pre_hook(lambda o, saved: calls.append("sooner"), prepend=True)
    sgd.register_load_state_dict_post_hook(lambda o: calls.append("last"))
    sgd.load_state_dict(saved)
    assert calls == ["sooner", "first", "last"]


@pytest.mark.parametrize(("strategy", "rates"), [
    ("linear", [0.75, 0.5, 0.5]), ("cos", [0.75, 0.5, 0.5])])
def test_rates_go_to_that_of_averages(strategy, rates):
    sgd = torch.optim.SGD([parameter()], lr=1.0)
    schedule = SWALR(sgd, swa_lr=0.5, anneal_epochs=2, anneal_strategy=strategy)
    seen = []
    for _ in rates:
        sgd.step()
        schedule.step()
        seen += schedule.get_last_lr()
    assert seen == pytest.approx(rates, rel=1e-14)


def test_rates_of_averages_are_checked():
    sgd = torch.optim.SGD([parameter()], lr=1.0)
    with pytest.raises(ValueError, match="anneal_strategy must be one of"):
        SWALR(sgd, 0.5, anneal_strategy="steps")
    with pytest.raises(ValueError, match="anneal_epochs must be equal or greater than 0"):
        SWALR(sgd, 0.5, anneal_epochs=-1)
    with pytest.raises(TypeError, match="int is not an Optimizer"):
        torch.optim.lr_scheduler.StepLR(3, 1)


def test_a_mean_of_models_by_lists():
    model = torch.nn.Linear(1, 1, bias=False)
    mean = AveragedModel(model, multi_avg_fn=get_swa_multi_avg_fn())
    for value in (1.0, 2.0, 6.0):
        torch.nn.init.constant_(model.weight, value)
        mean.update_parameters(model)
    assert mean.module.weight.item() == 3


@pytest.mark.parametrize("ends", [(0.0, 2.0), (2.0, 0.0), (-0.5, 3.0)])
def test_the_minimum_of_a_cubic_is_found_from_either_end(ends):
    a, b = [(t, t**3 - 3 * t, None, 3 * t**2 - 3) for t in ends]
    assert lbfgs._minimum_of_cubic(a, b) == pytest.approx(1.0, rel=1e-12)
