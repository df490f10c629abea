"""``python -m functrans.autograd script.py args``: a program written for autograd, on functrans.

``-m module`` runs a module, ``-c code`` a string.
"""

from __future__ import annotations

import sys

from functrans._interop.stand_ins import run_program
from functrans.autograd.install import install

if __name__ == "__main__":
    run_program("autograd", install, sys.argv[1:])
