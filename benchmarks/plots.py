"""`python -m benchmarks.plots`: draws benchmarks/results.json into docs/plots, as a full `make bench` does by itself.

The same results give the same files, byte for byte.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks.result import Curve, Result

RESULTS: Final = Path(__file__).parent / "results.json"
PLOTS: Final = Path(__file__).parent.parent / "docs" / "plots"
STYLE: Final = {
    "svg.hashsalt": "lakestream",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
}
MET, MISSED, LIMIT, LINE = "#2a7f62", "#c0563b", "#555555", "#2f5d8a"
TICKS: Final = (0.5, 1, 2, 5, 10, 20, 50)
MANY: Final = 20
"""Fewer points are marked on their line."""
WIDE: Final = 50
"""Marked points whose ends are that many times apart get a logarithmic axis."""


def draw(results: Sequence[Result], folder: Path = PLOTS) -> list[Path]:
    """One picture of all results beside their targets, one of each curve."""
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        curves = [result["curve"] for result in results if "curve" in result]
        return [_targets(results, folder / "targets.svg"), *(_curve(curve, folder) for curve in curves)]


def _targets(results: Sequence[Result], path: Path) -> Path:
    """Bars from the target to the right are better than it by that factor, to the left worse."""
    figure = Figure(figsize=(9, 0.26 * len(results) + 1.2), layout="constrained")
    axes = figure.subplots()
    factors = [_factor(result) for result in results]
    names = [result["name"] for result in results]
    colours = [MET if result["met"] else MISSED for result in results]
    axes.barh(names, [factor - 1 for factor in factors], left=1, color=colours)
    axes.axvline(1, color=LIMIT, linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set_xlabel("times better than its target")
    axes.tick_params(axis="y", labelsize=8)
    return _save(figure, path)


def _factor(result: Result) -> float:
    beside = result["ratio"] if result["peer"] is not None else result["ours"]
    return beside / result["target"] if result["bound"] == "least" else result["target"] / beside


def _curve(curve: Curve, folder: Path) -> Path:
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    across, up = zip(*curve["points"], strict=True)
    axes.plot(across, up, color=LINE, marker="o" if len(across) < MANY else None)
    if curve["limit"] is not None:
        axes.axhline(curve["limit"], color=LIMIT, linestyle="--", linewidth=1)
        axes.annotate("limit", (1, curve["limit"]), xycoords=("axes fraction", "data"), va="bottom", ha="right")
    if len(across) < MANY and across[0] > 0 and across[-1] / across[0] > WIDE:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_title(curve["title"], fontsize=10)
    axes.set_xlabel(curve["x"])
    axes.set_ylabel(curve["y"])
    return _save(figure, folder / f"{curve['name']}.svg")


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return path


if __name__ == "__main__":
    for path in draw(json.loads(RESULTS.read_text())):
        print(path.relative_to(Path.cwd()))
