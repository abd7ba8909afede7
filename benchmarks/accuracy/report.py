"""Writes docs/accuracy.md and its picture from the results: `make accuracy-report`. The worst cases come first."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from cuda_runs import CUDA_RUNS

from rlmem.plan.cuda import traced_components
from rlmem.plan.framework import rows_per_update, uses_cudnn
from rlmem.run import run_from_mapping
from rlmem.units import format_bytes

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
TIE = 0.01
"""A phase that comes this close to the peak may as well be named: two trainings of one run differ by more."""


def main() -> None:
    ram, vram = _ram_results(), _vram_results()
    (ROOT / "docs" / "accuracy.md").write_text(_page(ram, vram))
    _picture(ram, vram)
    print(_page(ram, vram)[:2500])


def _ram_results() -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted((RESULTS / "accuracy").glob("*.json"))]
    return [
        result | {"again": path.stem.endswith("-again")}
        for result, path in zip(found, sorted((RESULTS / "accuracy").glob("*.json")), strict=True)
    ]


def _vram_results() -> list[dict[str, Any]]:
    measured = json.loads((RESULTS / "cuda_accuracy.json").read_text())
    return [
        {"name": name, "measured": figures["driver_bytes"], "predicted": _predicted_vram(name), "by": figures}
        for name, figures in measured.items()
        if "driver_bytes" in figures
    ]


def _predicted_vram(name: str) -> int:
    """Return what the driver would count, from a trace made without a GPU."""
    from rlmem.sb3.fake_training import trace_on_gpu
    from rlmem.sb3.tracing import weightless_model

    run = run_from_mapping(CUDA_RUNS[name])
    update = trace_on_gpu(weightless_model(run), rows=rows_per_update(run))
    return sum(part.bytes for part in traced_components(update, with_cudnn=uses_cudnn(run)))


def _summary(errors: list[float]) -> str:
    sizes = sorted(abs(error) for error in errors)
    high = sizes[min(len(sizes) - 1, round(0.95 * (len(sizes) - 1)))]
    return f"{len(errors)} | {statistics.median(sizes):.1%} | {high:.1%} | {min(errors):+.1%} | {max(errors):+.1%}"


def _page(ram: list[dict[str, Any]], vram: list[dict[str, Any]]) -> str:
    good = [result for result in ram if "error" in result and not result["again"]]
    failed = [result for result in ram if "failed" in result]
    errors = {result["name"]: result["error"]["ram"] for result in good}
    tuned = [result["error"]["ram"] for result in good if not result["held_out"]]
    held = [result["error"]["ram"] for result in good if result["held_out"]]
    device = [item["predicted"] / item["measured"] - 1 for item in vram]
    setting = good[0]["setting"]
    lines = [
        "# Accuracy",
        "",
        "Predicted against measured, over real runs. Made by `make bench-accuracy` and `make accuracy-report`; the raw",
        "results are in `benchmarks/results/`. A positive error means that the plan said too much.",
        "",
        "| | runs | median | 95th percentile | worst under | worst over |",
        "|---|---|---|---|---|---|",
        f"| RAM, all | {_summary(list(errors.values()))} |",
        f"| RAM, the half the model was tuned on | {_summary(tuned)} |",
        f"| RAM, the held-out half | {_summary(held)} |",
        f"| VRAM | {_summary(device)} |",
        "",
        *_bars(list(errors.values()), device),
        "",
        "![predicted against measured](accuracy.png)",
        "",
        f"**RAM**: {setting['cores']} cores, {format_bytes(setting['ram_total_bytes'])}, Python {setting['python']}, "
        f"{setting['libc']}, " + ", ".join(f"{name} {number}" for name, number in setting["libraries"].items()) + ".",
        "Truth is VmHWM for one process and the largest sum of PSS over the tree for several. Observations are random, epochs",
        "are not repeated, and a replay buffer is filled before the first update: none of these bears on the peak.",
        "",
        *_noise(ram),
        "",
        *_phases(ram),
        "",
        "## RAM, the worst first",
        "",
        "| run | error | predicted | phase | measured | half |",
        "|---|---|---|---|---|---|",
        *(_ram_row(result) for result in sorted(good, key=lambda result: -abs(result["error"]["ram"]))),
        *(
            ["", "Failed: " + "; ".join(f"{result['name']} ({result['failed']})" for result in failed)]
            if failed
            else []
        ),
        "",
        "## VRAM, the worst first",
        "",
        "Measured on an NVIDIA H200 with torch 2.11: what the driver has in use after training, less what it had before.",
        "Predicted from a trace made without a GPU. The context and the workspaces of cuBLAS were metered on the same card,",
        "so on another one they will be further off.",
        "",
        "| run | error | predicted | measured | reserved by torch | allocated |",
        "|---|---|---|---|---|---|",
        *(_vram_row(item) for item in sorted(vram, key=lambda item: -abs(item["predicted"] / item["measured"] - 1))),
        "",
    ]
    return "\n".join(lines)


def _bars(ram: list[float], vram: list[float]) -> list[str]:
    """Return what was aimed for beside what was reached, the bad with the good."""

    def high(errors: list[float]) -> float:
        sizes = sorted(abs(error) for error in errors)
        return sizes[min(len(sizes) - 1, round(0.95 * (len(sizes) - 1)))]

    aims = [
        ("RAM: median error at most 2 %", statistics.median(map(abs, ram)) <= 0.02),
        ("RAM: 95th percentile at most 5 %", high(ram) <= 0.05),
        ("RAM: no under-estimate beyond 3 %", min(ram) >= -0.03),
        ("VRAM: median error at most 3 %", statistics.median(map(abs, vram)) <= 0.03),
        ("VRAM: 95th percentile at most 8 %", high(vram) <= 0.08),
    ]
    return ["| aim | reached |", "|---|---|", *(f"| {aim} | {'yes' if met else '**no**'} |" for aim, met in aims)]


def _noise(ram: list[dict[str, Any]]) -> list[str]:
    first = {result["name"]: result for result in ram if "error" in result and not result["again"]}
    pairs = [(first[result["name"]], result) for result in ram if result["again"] and "error" in result]
    if not pairs:
        return ["No run was repeated, so the noise of the meter is not known."]
    differences = [abs(two["measured"]["ram_bytes"] / one["measured"]["ram_bytes"] - 1) for one, two in pairs]
    median, most = statistics.median(differences), max(differences)
    return [
        f"{len(pairs)} runs were measured twice: the two differ by {median:.1%} in the median and {most:.1%} at most."
    ]


def _phases(ram: list[dict[str, Any]]) -> list[str]:
    """Return how often the plan names the phase of the peak; each run counts once, by its best metered result."""
    best: dict[str, dict[str, Any]] = {}
    for result in sorted((result for result in ram if "error" in result), key=_phase_knowledge):
        best[result["name"]] = result
    verdicts = Counter(_phase_verdict(result) for result in best.values())
    metered = sum(verdicts.values()) - verdicts["not metered"]
    if not metered:
        return [f"The phase of the peak was metered in none of the {len(best)} runs."]
    untold = verdicts["another, ties unknown"]
    words = [
        f"**The phase of the peak**: of {metered} runs the plan names the right one in {verdicts['right']}; another in",
        f"{verdicts['tie']} that reaches the peak to within {TIE:.0%} (a tie), and a wrong one in {verdicts['wrong']}.",
    ]
    if untold:
        words.append(
            f"It names another in {untold} more, measured before each phase had a mark of its own: ties are not known."
        )
    if verdicts["not metered"]:
        words.append(f"In {verdicts['not metered']} runs the phase was not metered; they are left out.")
    return words


def _phase_knowledge(result: dict[str, Any]) -> int:
    measured = result["measured"]
    return bool(measured.get("ram_phase")) + bool(measured.get("phases"))


def _phase_verdict(result: dict[str, Any]) -> str:
    named, measured = result["predicted"]["ram_phase"], result["measured"]
    marks = measured.get("phases")
    if not measured.get("ram_phase"):
        return "not metered"
    if named == measured["ram_phase"]:
        return "right"
    if not marks:
        return "another, ties unknown"
    return "tie" if marks.get(named, 0) >= (1 - TIE) * max(marks.values()) else "wrong"


def _ram_row(result: dict[str, Any]) -> str:
    predicted, measured = result["predicted"], result["measured"]
    return (
        f"| {result['name']} | {result['error']['ram']:+.1%} | {format_bytes(predicted['ram_bytes'])} | "
        f"{predicted['ram_phase']} | {format_bytes(measured['ram_bytes'])} | {'held out' if result['held_out'] else 'tuned'} |"
    )


def _vram_row(item: dict[str, Any]) -> str:
    figures = item["by"]
    return (
        f"| {item['name']} | {item['predicted'] / item['measured'] - 1:+.1%} | {format_bytes(item['predicted'])} | "
        f"{format_bytes(item['measured'])} | {format_bytes(figures['reserved_bytes'])} | "
        f"{format_bytes(figures['allocated_bytes'])} |"
    )


def _picture(ram: list[dict[str, Any]], vram: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 5))
    good = [result for result in ram if "error" in result and not result["again"]]
    for held_out, label in ((False, "tuned on"), (True, "held out")):
        points = [result for result in good if result["held_out"] is held_out]
        axes[0].scatter(
            [result["measured"]["ram_bytes"] / 2**20 for result in points],
            [result["predicted"]["ram_bytes"] / 2**20 for result in points],
            s=18, alpha=0.7, label=label,
        )  # fmt: skip
    axes[0].set_title(f"RAM: {len(good)} real runs")
    axes[1].scatter(
        [item["measured"] / 2**20 for item in vram], [item["predicted"] / 2**20 for item in vram], s=18, alpha=0.7,
        color="tab:green", label="H200",
    )  # fmt: skip
    axes[1].set_title(f"VRAM: {len(vram)} real runs")
    for axis in axes:
        points = [float(value) for group in axis.collections for value in group.get_offsets().ravel()]
        line = [0.8 * min(points), 1.25 * max(points)]
        axis.set_xlim(*line)
        axis.set_ylim(*line)
        axis.plot(line, line, color="gray", linewidth=0.8)
        axis.fill_between(
            line, [0.95 * x for x in line], [1.05 * x for x in line], color="gray", alpha=0.15, label="±5 %"
        )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("measured, MiB")
        axis.set_ylabel("predicted, MiB")
        axis.legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "accuracy.png", dpi=110)


if __name__ == "__main__":
    main()
