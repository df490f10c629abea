"""``python -m functrans.torch script.py args``: a program written for torch, on the shim.

``-m module`` runs a module, ``-c code`` a string.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from functrans.torch.install import install

USAGE = "usage: python -m functrans.torch (script.py | -m module | -c code) [arguments]"


def main(arguments: list[str]) -> None:
    """Run the program that ``arguments`` name, which finds the shim as ``torch``."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        sys.exit(0 if arguments else 2)
    install()
    if arguments[0] in ("-m", "-c"):
        if len(arguments) < 2:
            print(USAGE, file=sys.stderr)
            sys.exit(2)
        what, program, *rest = arguments
        sys.argv[:] = [what if what == "-c" else program, *rest]
        sys.path.insert(0, "")
        if what == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        return
    script = Path(arguments[0])
    sys.argv[:] = arguments
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
