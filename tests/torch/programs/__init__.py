"""Programs in the style of torch.autograd's tutorials, run unchanged on the shim and on torch.

Each module imports ``torch`` as users do. Each function in ``__all__`` is a program: it takes
nothing and returns its numbers by name. ``record`` stores what torch computes.
"""

NAMES = ["fitting", "networks", "higher", "functions", "chances", "dynamics", "structures",
         "operations", "signals", "training", "flows", "rarer",
         "probabilities", "recent"]
