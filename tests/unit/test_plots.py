from pathlib import Path

from benchmarks.plots import draw
from benchmarks.result import at_most_of, reaches, stays_under, versus, with_curve

RESULTS = [
    versus("twice as fast as a peer", 20, 10, "MB/s", at_least=1),
    at_most_of("more than a fifth of a peer", 3, 10, "s", at_most=0.2),
    reaches("below a figure", 300, "MB/s", at_least=400),
    with_curve(
        stays_under("within a figure", 12, "µs", at_most=50),
        "lookup",
        "From an offset to its file",
        x="files",
        y="µs",
        points=[(1_000, 7.0), (1_000_000, 12.0)],
        limit=50,
    ),
]


def test_what_is_met_is_told_by_the_direction_of_the_bound() -> None:
    assert [result["met"] for result in RESULTS] == [True, False, False, True]


def test_results_are_drawn_beside_their_targets_and_as_curves(tmp_path: Path) -> None:
    paths = draw(RESULTS, tmp_path)
    assert [path.name for path in paths] == ["targets.svg", "lookup.svg"]
    targets, lookup = (path.read_text() for path in paths)
    assert all(result["name"] in targets for result in RESULTS)
    assert "From an offset to its file" in lookup
    assert "limit" in lookup


def test_the_same_results_give_the_same_files(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in draw(RESULTS, tmp_path / "first")]
    assert first == [path.read_bytes() for path in draw(RESULTS, tmp_path / "second")]
