"""Names of torch that are not here: what an error says is there in their place, and modules of
torch whose names one of ours has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

# name, in whatever module -> what to use
INSTEAD = {
    "Adafactor": "optim.Adam is there",
    "SparseAdam": "optim.Adam is there, gradients are dense",
    "Muon": "optim.SGD with momentum is there",
    "GeneralizedPareto": "Pareto is there",
    "MaskedTensor": "where is there",
    "masked": "where is there",
    "SyncBatchNorm": "BatchNorm1d to 3d are there",
    "DistributedSampler": "RandomSampler is there",
    "gru": "nn.GRU is there",
    "lstm": "nn.LSTM is there",
    "rnn_relu": "nn.RNN is there",
    "rnn_tanh": "nn.RNN is there",
    "lobpcg": "linalg.eigh is there",
    "ldl_factor": "linalg.lu is there",
    "ldl_solve": "linalg.solve is there",
    "histogramdd": "histogram is there",
    "sparse_csr_tensor": "sparse_coo_tensor is there",
    "sparse_csc_tensor": "sparse_coo_tensor is there",
    "sparse_bsr_tensor": "sparse_coo_tensor is there",
    "quantize_per_tensor": "no quantised types are there",
    "qint8": "no quantised types are there",
    "Storage": "no storages are there; numpy() shows the memory",
    "UntypedStorage": "no storages are there; numpy() shows the memory",
}
# parent of ours -> modules of torch under it whose names the parent has
WITHIN = {
    "": "functional",
    "distributions": "bernoulli beta binomial categorical cauchy chi2 continuous_bernoulli "
                     "dirichlet exponential fishersnedecor gamma geometric gumbel "
                     "half_cauchy half_normal independent inverse_gamma kumaraswamy laplace "
                     "lkj_cholesky log_normal logistic_normal lowrank_multivariate_normal "
                     "mixture_same_family multinomial multivariate_normal negative_binomial "
                     "normal one_hot_categorical pareto poisson relaxed_bernoulli "
                     "relaxed_categorical studentT transformed_distribution uniform "
                     "von_mises weibull wishart",
    "nn.modules": "activation adaptive batchnorm container conv distance dropout flatten fold "
                  "instancenorm linear loss normalization padding pixelshuffle pooling rnn sparse "
                  "upsampling",
    "nn": "parallel",
    "nn.utils": "clip_grad convert_parameters",
    "optim": "adadelta adagrad adam adamax adamw asgd nadam radam rmsprop rprop sgd",
}
PARENTS = {f"{parent}.{name}".lstrip("."): parent
           for parent, names in WITHIN.items() for name in names.split()}


def absent(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: itself for modules of torch whose names it has, for others
    an error that says what is there."""
    within = WITHIN.get(module.removeprefix("functrans.torch").lstrip("."), "").split()

    def __getattr__(name: str) -> Any:
        if name in within:
            return sys.modules[module]
        said = f"module '{module.removeprefix('functrans.')}' has no attribute '{name}'"
        if not name.startswith("__"):
            said += f": {_instead(module, name)}; docs/torch.md says what is not there and why"
        raise AttributeError(said)

    return __getattr__


def _instead(module: str, name: str) -> str:
    if name in INSTEAD:
        return INSTEAD[name]
    homes = [home.removeprefix("functrans.") for home, m in sorted(sys.modules.items())
             if home.startswith("functrans.torch") and name in getattr(m, "__all__", ())]
    if homes:
        return f"{homes[0]}.{name} is there"
    import difflib  # lazy: for this error alone

    near = difflib.get_close_matches(name, [n for n in vars(sys.modules[module]) if n[0] != "_"])
    return f"near it are {', '.join(near)}" if near else "nothing like it is there"
