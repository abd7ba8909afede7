"""The five cases get the right answer where their own documents got it wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _phase(plan, name):
    return next(phase for phase in plan["phases"] if phase["name"] == name)


def _bytes(plan, path, phase=None):
    name = phase or plan["peak"]["ram_phase"]
    return next(part["bytes"] for part in _phase(plan, name)["components"] if part["path"] == path)


def test_game_boy_counts_the_observations_once_and_the_flatten_copy_beside_them(rlmem_json):
    plan = rlmem_json("plan", "examples/game_boy/run.yaml")
    assert _bytes(plan, "buffer/observations") == 4_529_848_320
    assert plan["peak"]["ram_phase"] == "flatten"
    assert _bytes(plan, "buffer/flatten_copy") == 4_529_848_320
    assert plan["fits"] == {"ram": True, "vram": True}
    assert plan["peak"]["vram_phase"] == "update"


def test_game_boy_on_the_pinned_old_version_stores_float32(rlmem_json, tmp_path):
    text = (ROOT / "examples/game_boy/run.yaml").read_text()
    old = tmp_path / "old.yaml"
    old.write_text(text.replace("framework: sb3\n", "framework: sb3\nframework_version: 2.3.2\n"))
    plan = rlmem_json("plan", str(old))
    assert _bytes(plan, "buffer/observations") == 18_119_393_280
    assert plan["fits"]["ram"] is False


def test_game_boy_vram_is_near_what_an_h200_measured_at_four_batch_sizes(rlmem_json, tmp_path):
    # What the driver counted in real trainings. The default context and slack come from the same card.
    results = json.loads((ROOT / "benchmarks/results/cuda_accuracy.json").read_text())
    for batch in (256, 1024, 2048, 4096):
        measured = results[f"ppo game boy {batch}"]["driver_bytes"]
        text = (ROOT / "examples/game_boy/run.yaml").read_text()
        run = tmp_path / f"{batch}.yaml"
        run.write_text(text.replace("batch_size: 2048", f"batch_size: {batch}"))
        predicted = rlmem_json("plan", str(run))["peak"]["vram_bytes"]
        assert predicted == pytest.approx(measured, rel=0.10)


def test_game_boy_check_finds_the_no_op_the_save_interval_and_the_lost_callback(rlmem_json):
    found = rlmem_json("check", "examples/game_boy/run.yaml", "examples/game_boy/as_documented.py")["findings"]
    messages = {finding["code"]: finding["message"] for finding in found}
    assert "save_replay_buffer" in messages["RLM022"]
    assert "10 iterations" in messages["RLM020"]
    assert "163,840" in messages["RLM020"]
    assert "EvalCallback" in messages["RLM050"]
    assert "RLM001" not in messages, "2,048 divides 16,384"
    assert "RLM002" not in messages, "2,048 is smaller than 16,384"


def test_drone_swarm_has_fixed_cost_and_slope_apart(rlmem_json):
    plan = rlmem_json("plan", "examples/drone_swarm/run.yaml")
    capacity = plan["capacity"]
    slopes = {slope["path"]: slope for slope in capacity["slopes"]}
    assert slopes["buffer/observations"] == {
        "path": "buffer/observations",
        "fixed_bytes": 0,
        "per_unit_bytes": 721_600,
    }
    assert slopes["process/main"]["per_unit_bytes"] == 0
    assert capacity["fixed_bytes"] + capacity["per_unit_bytes"] * 10_000 == plan["peak"]["ram_bytes"]
    activations = slopes["update/activations/autoencoder"]["per_unit_bytes"]
    assert activations > 10 * slopes["buffer/observations"]["per_unit_bytes"], "rows in the graph decide"


def test_trading_is_small_and_its_thread_stacks_are_not_resident(rlmem_json):
    plan = rlmem_json("plan", "examples/trading/run.yaml")
    assert plan["parameters"] == 1_297_935
    assert _phase(plan, "collect")["groups"]["ram"]["buffer"] == 1_425_408
    stacks = {part["path"]: part for part in _phase(plan, "update")["components"] if "thread_stacks" in part["path"]}
    assert stacks["process/thread_stacks_reserved"]["where"] == "virtual"
    assert stacks["process/thread_stacks_reserved"]["bytes"] == 53 * 8 * 2**20
    assert stacks["process/thread_stacks"]["bytes"] < 2 * 2**20
    assert plan["peak"]["ram_bytes"] < 10**9


def test_evolution_grows_by_28_gb_a_generation_and_fills_the_machine_in_the_seventh(rlmem_json):
    plan = rlmem_json("plan", "examples/evolution/run.yaml")
    one = _bytes(plan, "buffer/observations") / 50_000
    assert one == 12_138_336
    assert _phase(plan, "collect")["groups"]["ram"]["buffer"] == pytest.approx(611e9, rel=0.001)
    assert plan["growth"]["bytes_per"] == pytest.approx(28.4e9, rel=0.005)
    assert plan["growth"]["limit_at"] == 7
    assert plan["fits"]["ram"] is False


@pytest.mark.parametrize(
    ("name", "observations"),
    [
        ("full", 112_403_873_792),
        ("memory_optimized", 14_050_484_224),
        ("ultra_light", 1_239_748_608),
        ("small", 3_512_621_056),
    ],
)
def test_open_pit_has_the_sizes_of_the_real_block_model(rlmem_json, name, observations):
    plan = rlmem_json("plan", f"examples/open_pit/{name}.yaml")
    assert _bytes(plan, "buffer/observations") == observations


def test_open_pit_full_peaks_at_about_209_gib_when_it_is_flattened(rlmem_json):
    plan = rlmem_json("plan", "examples/open_pit/full.yaml")
    assert plan["peak"]["ram_phase"] == "flatten"
    twice = _bytes(plan, "buffer/observations") + _bytes(plan, "buffer/flatten_copy")
    assert twice / 2**30 == pytest.approx(209.4, abs=0.1)
    assert _bytes(plan, "buffer/action_masks") / 2**20 == pytest.approx(109, abs=0.5)


def test_open_pit_compare_orders_the_four_rightly(rlmem_json):
    files = [f"examples/open_pit/{name}.yaml" for name in ("full", "memory_optimized", "small", "ultra_light")]
    compared = rlmem_json("compare", *files, "--ram", "8GB")
    names = [run["name"].removeprefix("open_pit ") for run in compared["runs"]]
    assert names == ["ultra_light", "small", "memory_optimized", "full"]
    assert [run["fits"] for run in compared["runs"]] == [True, False, False, False]
    assert compared["largest_that_fits"] == "open_pit ultra_light"


def test_open_pit_script_parses_a_device_that_never_arrives(rlmem_json):
    found = rlmem_json("check", "examples/open_pit/as_documented.py")["findings"]
    assert [finding["code"] for finding in found] == ["RLM051"]
