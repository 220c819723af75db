"""docs/onnx-operators.md, written from the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.cases import Case
from tests.conformance.reasons import TITLES
from tests.conformance.run import Results

RUNTIME = "ONNX Runtime itself, asked for the case's own file, answers otherwise than stored"
PAGE = Path(__file__).parents[2] / "docs" / "onnx-operators.md"


def render(cases: Sequence[Case], results: Results) -> str:
    """The page.

    Raises:
        ValueError: A case is neither served nor excepted for a reason.
    """
    import onnx
    import onnxruntime

    if results.wrong:
        raise ValueError(f"{len(results.wrong)} cases are wrong: {', '.join(sorted(results.wrong)[:10])}")
    served, runtime = results.served, results.runtime
    batched = sum(served.values())
    lines = [
        "# ONNX operators",
        "",
        "<!-- Written by `python -m tests.conformance`; a test runs the cases again and compares. -->",
        "",
        (
            f"onnx {onnx.__version__} ships {len(cases)} test cases for backends: one or more for every"
            " operator, and whole models as far back as opset 6. Each goes through repobuild"
            " as `convert` takes a file:"
            " normal form, opset of the newest Triton release, config.pbtxt, warm-up. The"
            " bundled server, with"
            f" ONNX Runtime {onnxruntime.__version__} on the CPU, serves them all at once, is asked with"
            " tritonclient for each stored input, and has to give the stored answer, within"
            " the bounds of ONNX's own runner"
            " (rtol 1e-3, atol 1e-7; two units in the last place for FP16; 1e-6 of the largest value for DFT,"
            " STFT)."
        ),
        "",
        (
            f"**{len(served)} of {len(cases)} are served and answered as stored**, {batched} of them with a"
            f" batch dimension that was proven; {len(results.partial)} have further outputs"
            " that Triton does not"
            " carry, which are left out. No other answer is wrong."
        ),
        "",
        "| cases | not served, because |",
        "| ---: | --- |",
    ]
    reasons = Counter(results.excepted.values())
    lines += [f"| {reasons[title]} | {title} |" for title in TITLES if reasons[title]]
    lines += [
        f"| {len(runtime)} | {RUNTIME} |",
        "",
        "## Answers of ONNX Runtime that ONNX's cases do not have",
        "",
        *(f"- `{name}`: {why}" for name, why in sorted(runtime.items())),
        "",
        "## By operator",
        "",
        "Cases served, of all that there are; a graph of several operators counts for its first.",
        "",
        "| operator | served | of |",
        "| --- | ---: | ---: |",
    ]
    node = [c for c in cases if c.kind == "node"]
    every = Counter(c.operator for c in node)
    good = Counter(c.operator for c in node if c.name in served)
    lines += [f"| {name} | {good[name]} | {every[name]} |" for name in sorted(every)]
    lines += ["", "## Not served", ""]
    for title in TITLES:
        names = sorted(n for n, t in results.excepted.items() if t == title)
        if names:
            lines += [f"{title[0].upper()}{title[1:]}: {', '.join(f'`{n}`' for n in names)}", ""]
    return "\n".join(lines).rstrip() + "\n"
