"""``python -m functrans.torch script.py args``: a program written for torch, on the shim.

``-m module`` runs a module, ``-c code`` a string.
"""

from __future__ import annotations

import sys

from functrans._interop.stand_ins import run_program
from functrans.torch.install import install

if __name__ == "__main__":
    run_program("torch", install, sys.argv[1:])
