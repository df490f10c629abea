"""Run the comparisons: all of them, or those named.

Without names all run, ``docs/benchmarks.md`` is written and ``build/benchmarks.json``; with names
the tables are printed, and written only where --markdown and --json say.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    args = _arguments()
    if args.threads or args.gate:  # threads of BLAS that wait would count in the processor's time
        _limit_threads(args.threads or 1)
    if args.against:
        from benchmarks import against

        against.compare(args.against, args.names)
        return 0
    if args.gate:
        from benchmarks import gate

        return gate.main(args.names, args.renew)
    # imported after the thread limits are set, which libraries read when they load
    from benchmarks import (
        arrays,
        as_written,
        from_source,
        imports,
        jit,
        kernels,
        loops,
        matrix_free,
        memory,
        odes,
        overhead,
        parallel,
        programs,
        ragged,
        report,
        shim,
        sparse,
        special,
        speed,
        watching,
        workloads,
    )
    from benchmarks.peers import available

    peers, missing = available()
    if args.peers:
        wanted = {"functrans", *args.peers.split(",")}
        peers = [p for p in peers if p.name in wanted]
    runs: dict[str, Callable[[], report.Table]] = {
        name: lambda build=build: speed.run(build(peers), args.scale)
        for name, build in (speed.CASES | shim.CASES).items()
    }
    runs |= {
        name: lambda build=build: jit.run(build(), args.scale) for name, build in jit.CASES.items()
    }
    runs |= {
        case.name: lambda case=case: arrays.table(case, peers, args.scale) for case in arrays.CASES
    }
    runs |= {
        name: lambda build=build: build(peers, args.scale)
        for name, build in programs.TABLES.items()
    }
    runs["jit-compile"] = lambda: jit.compile_table(args.scale)
    runs["jit-price"] = lambda: jit.price_table(args.scale)
    runs["jit-guards"] = lambda: as_written.guards_table(args.scale)
    runs["as-written"] = lambda: as_written.table(args.scale)
    runs["jit-lengths"] = lambda: ragged.table(args.scale)
    runs["jit-loops"] = lambda: loops.table(args.scale)
    runs["jit-from-source"] = lambda: from_source.table(args.scale)
    if kernels.numba is not None:
        runs["numba-price"] = lambda: kernels.price_table(args.scale)
        runs["numba-calls"] = lambda: kernels.call_table(args.scale)
    runs["overhead"] = lambda: overhead.table(peers, args.scale)
    runs["special"] = lambda: special.table(args.scale)
    runs["odes"] = lambda: odes.table(args.scale)
    runs["sparse"] = lambda: sparse.table(args.scale)
    if parallel.distributed is not None:
        runs["parallel-executor"] = lambda: parallel.executor_table(args.scale)
        runs["parallel-dask"] = lambda: parallel.dask_table(args.scale)
    runs["watching"] = lambda: watching.table(args.scale)
    runs["laplacian"] = lambda: matrix_free.laplacian_table(args.scale)
    runs["matrix-budget"] = matrix_free.budget_table
    runs["import"] = lambda: imports.table(args.scale)
    runs["memory-peak"] = lambda: memory.peak_table(peers)
    runs["memory-loop"] = lambda: memory.growth_table(peers)
    runs["shim-memory"] = lambda: shim.memory_table(peers)
    pages = {"workloads": lambda: workloads.table(scale=args.scale)}  # a page of its own
    if args.list:
        print("\n".join([*runs, *pages]))
        return 0
    named = runs | pages
    unknown = [n for n in args.names if n not in named]
    if unknown:
        sys.exit(f"no benchmark named {', '.join(unknown)}; there are {', '.join(named)}")
    header = _header(report.machine(), peers, missing)
    print("\n".join(header), end="\n\n", flush=True)
    tables = []
    for name in args.names or runs:
        tables.append(named[name]())
        print(tables[-1].markdown(), flush=True)
    everything = not args.names and not args.peers
    markdown = args.markdown or (ROOT / "docs" / "benchmarks.md" if everything else None)
    record = args.json or (ROOT / "build" / "benchmarks.json" if everything else None)
    for path, text in (
        (markdown, report.page(tables, header)), (record, report.to_json(tables, header)),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {path}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="which to run (default: all)")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--scale", type=float, default=1.0, help="rounds: 0.2 is a quick look")
    parser.add_argument("--threads", type=int, help="processors to use (default: all)")
    parser.add_argument("--against", metavar="COMMIT", help="compare with that state instead")
    parser.add_argument("--gate", action="store_true",
                        help="fail where a workload is slower than benchmarks/gate.json says")
    parser.add_argument("--renew", action="store_true", help="with --gate: write that file")
    parser.add_argument("--peers", help="only these, by name, separated by commas")
    parser.add_argument("--markdown", type=Path, help="write the page there")
    parser.add_argument("--json", type=Path, help="write the figures there")
    return parser.parse_args()


def _limit_threads(n: int) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(n)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n])


def _header(machine: dict, peers: list, missing: list[str]) -> list[str]:
    versions = {p.module: f"{p.module} {p.version}" for p in peers}
    with contextlib.suppress(metadata.PackageNotFoundError):  # of the sparse derivatives alone
        versions["casadi"] = f"casadi {metadata.version('casadi')}"
    torch = next((p for p in peers if p.module == "torch"), None)
    threads = f"{machine['cores']} processors"
    if torch is not None:
        threads += f", torch {torch.library.get_num_threads()} threads"
    return [
        f"Machine: {machine['processor']}, {machine['system']}",
        f"Threads: {threads}, OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'not set')}",
        f"Python {machine['python']}, NumPy {machine['numpy']}, {', '.join(versions.values())}",
        *missing,
    ]


if __name__ == "__main__":
    sys.exit(main())
