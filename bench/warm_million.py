"""A million entries of 1 KB, brought into an empty cache folder, verified, on two cores.

From a file of JSON lines, and from another cache folder, by ``trivet fill --jobs 2``: every entry
of a folder is held against its BLAKE3, and every one that is written is read back and compared.
Then a new process checks every byte of both folders; that time is no part of the figure. At last
the lines once more, with a kill -9 near the middle, and a second run that goes on from there.

The founding figure is 5 minutes for a million entries.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import arguments, child_environment, report

_BYTES = 1000
_JOBS = 2
_APP = """
from pathlib import Path
from trivet import Cache
from trivet.values import memo

cache = Cache.open(Path(__file__).parent / "lines", memory_bytes=0)

@memo(cache)
def embed(text: str) -> str:
    raise AssertionError("it is kept")
"""
_CHECK = """
import sys
from trivet.stores.host import HostStore
store = HostStore.open(sys.argv[1])
print(sum(each.problem is None for each in store.verify()))
"""


def main() -> None:
    """Measure and report."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--entries", type=int, default=1_000_000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    try:
        rows = _measure(folder, options.entries)
    finally:
        shutil.rmtree(folder)
    report("warm_million", rows, options.json)


def _measure(folder: Path, count: int) -> list[dict[str, object]]:
    title = f"{count} entries of {_BYTES} B"
    (folder / "benched_app.py").write_text(_APP)
    lines = folder / "rows.jsonl"
    _write_lines(lines, count)
    whole = _fill(folder, lines, "benched_app:embed")
    copied = _fill(folder, folder / "lines", "--cache-dir", folder / "copy")
    rows: list[dict[str, object]] = [
        {title: "JSON lines", "seconds": whole[0], "CPU seconds / cores": whole[1] / _JOBS},
        {title: "another folder", "seconds": copied[0], "CPU seconds / cores": copied[1] / _JOBS},
    ]
    for each in ("lines", "copy"):
        started = time.perf_counter()
        intact = int(_python(_CHECK, folder / each))
        assert intact == count, f"{intact} of {count} in {each}"
        name = f"every byte of {each} checked by a new process"
        seconds = time.perf_counter() - started
        rows.append({title: name, "seconds": seconds})
    shutil.rmtree(folder / "lines")
    first, _ = _fill(folder, lines, "benched_app:embed", kill_at=count // 2)
    before = _entries(folder / "lines")
    second, _ = _fill(folder, lines, "benched_app:embed")
    name = f"JSON lines, killed with {before} entries written, and again"
    rows.append({title: name, "seconds": first + second})
    return rows


def _write_lines(path: Path, count: int) -> None:
    noise = os.urandom(_BYTES * 512).hex()
    with path.open("w") as file:
        for n in range(count):
            at = n * 7919 % (len(noise) - _BYTES)
            value = noise[at : at + _BYTES]
            file.write(f'{{"args": ["text number {n}"], "value": "{value}", "cost": 0.01}}\n')


def _fill(folder: Path, *words: object, kill_at: int = 0) -> tuple[float, float]:
    """Wall and CPU seconds of the command; killed when ``kill_at`` entries or so are written."""
    command = Path(sys.executable).parent / "trivet"
    before = _cpu()
    started = time.perf_counter()
    process = subprocess.Popen(
        [command, "fill", *map(str, words), "--jobs", str(_JOBS)],
        cwd=folder,
        env=child_environment(),
    )
    if kill_at:
        while process.poll() is None and _size(folder / "lines") < kill_at * _BYTES * 2:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
    code = process.wait()
    assert code == 0 or kill_at, f"trivet fill ended with {code}"
    return time.perf_counter() - started, _cpu() - before


def _size(folder: Path) -> int:
    try:
        return (folder / "index/data.mdb").stat().st_size
    except FileNotFoundError:
        return 0


def _entries(folder: Path) -> int:
    code = "import sys; from trivet.stores.host import HostStore; "
    return int(_python(code + "print(HostStore.open(sys.argv[1]).stats().entries)", folder))


def _python(code: str, *words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    return done.stdout


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
