"""The layers of ``torch.nn``."""

from __future__ import annotations

from functrans.torch._names import absent
from functrans.torch.nn.modules import (
    containers,
    layers,
    lazy,
    normalisation,
    recurrent,
    transformer,
)
from functrans.torch.nn.modules.module import Module

LAYERS: dict[str, type[Module]] = {}


def _enter(*classes: type[Module]) -> None:
    for c in classes:
        LAYERS[c.__name__] = c


def _variant(name: str, base: type[Module], doc: str, **fields: object) -> None:
    """A class ``name`` of ``base``, which differs in a few fields."""
    fields = {"__doc__": doc, "__module__": "functrans.torch.nn", **fields}
    LAYERS[name] = type(name, (base,), fields)


_enter(
    transformer.MultiheadAttention, transformer.TransformerEncoderLayer,
    containers.AdaptiveLogSoftmaxWithLoss, containers.LinearCrossEntropyLoss,
    containers.DataParallel, containers.Identity,
    containers.ModuleDict, containers.ModuleList, containers.ParameterDict,
    containers.ParameterList, containers.Sequential, layers.Bilinear, layers.Dropout,
    layers.Embedding,
    layers.EmbeddingBag, layers.Flatten, layers.Linear, layers.PReLU, layers.Unflatten,
    normalisation.GroupNorm, normalisation.LayerNorm, normalisation.RMSNorm, recurrent.GRU,
    recurrent.GRUCell, recurrent.LSTM, recurrent.LSTMCell, recurrent.RNN, recurrent.RNNCell,
    transformer.Transformer, transformer.TransformerDecoder, transformer.TransformerDecoderLayer,
    transformer.TransformerEncoder,
)
for _name, _row in layers.STATELESS.items():
    if _name != "Dropout":  # a class of its own
        _variant(_name, layers.Stateless, f"``nn.functional.{_row[0]}`` as a module.", _row=_row)
for _n in (1, 2, 3):
    _variant(f"Conv{_n}d", layers.Convolution, layers.Convolution.__doc__ or "", _n=_n)
    _variant(f"ConvTranspose{_n}d", layers.ConvolutionTranspose,
             layers.ConvolutionTranspose.__doc__ or "", _n=_n)
    _dims = (2, 3) if _n == 1 else (_n + 2,)
    _variant(f"BatchNorm{_n}d", normalisation.BatchNorm, normalisation.BatchNorm.__doc__ or "",
             _dims=_dims)
    _variant(f"InstanceNorm{_n}d", normalisation.InstanceNorm,
             normalisation.InstanceNorm.__doc__ or "", _dims=(_n + 2,))
    for _mode in ("Constant", "Reflection", "Replication", "Circular", "Zero"):
        _as = {"Constant": "constant", "Zero": "constant", "Reflection": "reflect",
               "Replication": "replicate", "Circular": "circular"}[_mode]
        _variant(f"{_mode}Pad{_n}d", layers.Padding, f"``pad`` in the mode {_as!r}.", _n=_n,
                 _mode=_as)

_variant("UpsamplingNearest2d", LAYERS["Upsample"], "``Upsample`` in the mode 'nearest'.",
         _row=layers.upsampling("nearest", None))
_variant("UpsamplingBilinear2d", LAYERS["Upsample"],
         "``Upsample`` in the mode 'bilinear', corners aligned.",
         _row=layers.upsampling("bilinear", True))
for _name in ("Linear", *[f"{_kind}{_n}d" for _n in (1, 2, 3)
                          for _kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")]):
    _variant(f"Lazy{_name}", lazy.Lazy, f"``{_name}``, which learns the size of its input.",
             _whole=LAYERS[_name], _dim=-1 if _name == "Linear" else 1)

RNNBase, RNNCellBase = recurrent.Recurrent, recurrent.Cell
Container, NLLLoss2d = Module, LAYERS["NLLLoss"]

__all__ = ["Container", "Module", "NLLLoss2d", "RNNBase", "RNNCellBase", *LAYERS]
globals().update(LAYERS)

__getattr__ = absent(__name__)
