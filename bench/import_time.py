"""What ``import trivet`` costs above a bare Python, and what a server imports for plans."""

from __future__ import annotations

from collections.abc import Callable

from harness import alternate, arguments, report, run, summary

_PROGRAMS = {
    "bare Python": "pass",
    "import trivet": "import trivet",
    "from trivet import Cache": "from trivet import Cache",
    "from trivet.plans import Plans": "from trivet.plans import Plans",
    "import onnxruntime": "import onnxruntime",
    "Plans and onnxruntime": "import onnxruntime\nfrom trivet.plans import Plans",
}


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()

    def timed(code: str) -> Callable[[], float]:
        return lambda: run(code)[0] * 1e3

    measured = alternate({name: timed(code) for name, code in _PROGRAMS.items()}, options.rounds)
    bare = summary(measured["bare Python"])["median"]
    rows: list[dict[str, object]] = []
    for name, values in measured.items():
        figures = summary(values)
        rows.append(
            {
                "program": name,
                "ms": figures["median"],
                "low": figures["low"],
                "high": figures["high"],
                "above bare Python": figures["median"] - bare,
            }
        )
    report("import_time", rows, options.json)


if __name__ == "__main__":
    main()
