"""Write docs/lean_benchmark.md from the results in benchmarks/results/lean."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "lean"
PAGE = ROOT / "docs" / "lean_benchmark.md"
STOCK, LEAN, COMPACT = "sb3", "rlmem lean", "rlmem lean compact"
EXTRA = ("extra-buffers zstd-3", "extra-buffers zstd3")


def main() -> None:
    atari = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*-*-[0-9]*.json"))]
    cases = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("case-*.json"))]
    trainings = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("training-*.json"))]
    parts = [_head(atari), *_atari(atari), *_cases(cases), *_trainings(trainings)]
    PAGE.write_text("\n".join(parts).rstrip() + "\n")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def _head(atari: list[dict[str, Any]]) -> str:
    machine = atari[0]["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    return f"""# Lean buffers, measured

Written by `make lean-report` from what `make bench-lean` measured; the figures are in `benchmarks/results/lean`.
Contenders run side by side in one process, get the same transitions, and are sampled by turns, so that noise falls on
all alike. One thread. {machine["platform"]}; {versions}.

Sizes are all of what a filled buffer holds: for rlmem, what `nbytes` says, index, open tails and last observations
included; for the others, their arrays and Python objects. `extra-buffers` is sb3-extra-buffers, at the two levels
that it recommends; *opt.* are its and SB3's modes that do not store next observations, and give a wrong one wherever an
episode ends.
"""


def _atari(results: list[dict[str, Any]]) -> list[str]:
    lines = ["## Atari", ""]
    for policy in sorted({result["policy"] for result in results}):
        chosen = [result for result in results if result["policy"] == policy]
        lines += [f"### {policy} play, {chosen[0]['transitions']:,} transitions", "", *_sizes(chosen), *_times(chosen)]
    return lines


def _sizes(results: list[dict[str, Any]]) -> list[str]:
    names = [name for name in results[0]["contenders"] if name != STOCK]
    lines = [
        f"Bytes a transition; SB3's default holds {results[0]['contenders'][STOCK]['bytes_per_transition']:,.0f}.",
        "",
        "| game | " + " | ".join(names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    for result in results:
        cells = [_size(result["contenders"].get(name)) for name in names]
        lines.append(f"| {result['game']} | " + " | ".join(cells) + " |")
    for name in (LEAN, COMPACT):
        ratios = [result["contenders"][name]["times_smaller"] for result in results]
        lines += [
            "",
            f"{name}: geometric mean {geometric_mean(ratios):.0f}×, least {min(ratios):.0f}× under SB3's default.",
        ]
    rivals = [
        (result["contenders"][extra]["bytes"] / result["contenders"][LEAN]["bytes"], result["game"], extra)
        for result in results
        for extra in EXTRA
        if extra in result["contenders"]
    ]
    if rivals:
        ratio, game, extra = min(rivals)
        lines += [
            "",
            f"Against sb3-extra-buffers, {LEAN} is {ratio:.1f}× smaller where it is closest ({game}, {extra}).",
        ]
    return [*lines, ""]


def _size(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['bytes_per_transition']:,.0f} ({row['times_smaller']:.0f}×)"


def _times(results: list[dict[str, Any]]) -> list[str]:
    lines = [
        "Speed of sampling as a multiple of SB3's (above 1 is faster), and the median time to add a transition.",
        "",
        "| game | lean 32 | lean 256 | compact 32 | compact 256 | SB3 adds | lean adds | compact adds |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        rows = result["contenders"]
        speeds = [
            f"{rows[STOCK][f'sample_{batch}_ms'] / rows[name][f'sample_{batch}_ms']:.2f}×"
            for name in (LEAN, COMPACT)
            for batch in (32, 256)
        ]
        adds = [f"{rows[name]['add_us_median']:.0f} µs" for name in (STOCK, LEAN, COMPACT)]
        lines.append(f"| {result['game']} | " + " | ".join([*speeds, *adds]) + " |")
    return [*lines, ""]


def _cases(results: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## The examples, and noise",
        "",
        "Columns of the observations alone. *read* is the speed of a minibatch as a multiple of copying as many bytes out of",
        "a plain array that fits into memory.",
        "",
        "| case | raw | lean | ratio | put, an observation | slowest put | read | found |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in results:
        lines.append(
            f"| {row['case']} | {row['raw_bytes'] / 1e9:,.2f} GB | {row['lean_bytes'] / 1e6:,.1f} MB | "
            f"{row['times_smaller']:,.1f}× | {row['put_us_per_observation']:,.0f} µs | {row['slowest_put_ms']:,.0f} ms | "
            f"{row['plain_read_ms'] / row['read_ms']:.2f}× | {row['structure']} |"
        )
    return [*lines, ""]


def _trainings(results: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## Whole trainings",
        "",
        "Wall time with lean buffers as a multiple of the time with stock buffers, medians of pieces that take turns in one process.",
        "",
        "| algorithm | device | environment | timesteps | time | stock buffer | lean buffer | same weights | |",
        "|---|---|---|---:|---:|---:|---:|---|---|",
    ]
    for row in results:
        stock, lean = (row["buffer_bytes"][name] / 1e6 for name in ("stock", "lean"))
        lines.append(
            f"| {row['algorithm']} | {row['device']} | {row['environment']} | {row['settings']['timesteps']:,} | "
            f"{row['wall_time_ratio']:.3f}× | {stock:,.1f} MB | {lean:,.1f} MB | {'yes' if row['same_weights'] else 'no'} | "
            f"{row.get('note', '')} |"
        )
    return [*lines, ""]


if __name__ == "__main__":
    main()
