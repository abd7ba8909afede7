"""The command line as a user meets it: help, speed, pipes, widths, and what it says to nonsense."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlmem.commands import COMMANDS
from rlmem.report.json import plan_from_dict, plan_to_dict

ROOT = Path(__file__).parents[2]
GAME_BOY = "examples/game_boy/run.yaml"


def _fastest(command: list[str], *, tries: int = 5) -> float:
    times = []
    for _ in range(tries):
        started = time.perf_counter()
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    return min(times)


def test_help_answers_at_once():
    assert _fastest([sys.executable, "-m", "rlmem", "--help"]) < 0.3


def test_plan_of_a_run_file_takes_less_than_half_a_second():
    assert _fastest([sys.executable, "-m", "rlmem", "plan", GAME_BOY]) < 0.5


def test_planning_imports_neither_torch_nor_gymnasium():
    code = (
        "import sys, rlmem; rlmem.plan('examples/game_boy/run.yaml');"
        "sys.exit(any(name in sys.modules for name in ('torch', 'gymnasium', 'stable_baselines3', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("command", [command.NAME for command in COMMANDS])
def test_every_command_has_help_and_json(rlmem, command):
    result = rlmem(command, "--help")
    assert result.returncode == 0
    assert "--json" in result.stdout


def test_every_command_stands_in_the_readme():
    text = (ROOT / "README.md").read_text()
    assert all(f"rlmem {command.NAME}" in text for command in COMMANDS)


@pytest.mark.parametrize("width", [80, 160])
def test_a_plan_keeps_to_the_width_of_the_terminal(rlmem, width):
    lines = rlmem("plan", GAME_BOY, COLUMNS=str(width)).stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("FITS  game_boy")
    assert not any("…" in line for line in lines), "nothing is cut off"


def test_a_pipe_gets_no_colour(rlmem):
    assert "\x1b[" not in rlmem("plan", GAME_BOY).stdout


def test_the_reader_of_a_pipe_may_go_away():
    command = f"{sys.executable} -m rlmem plan {GAME_BOY} --json | head -1"
    result = subprocess.run(["/bin/bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stdout == "{\n"
    assert result.stderr == ""


def test_another_phase_can_be_shown(rlmem):
    result = rlmem("plan", GAME_BOY, "--phase", "update")
    assert "RAM in update" in result.stdout
    wrong = rlmem("plan", GAME_BOY, "--phase", "updat")
    assert wrong.returncode == 2
    assert "startup, collect, flatten, update, save" in wrong.stderr


def test_exit_code_says_whether_it_fits(rlmem):
    assert rlmem("plan", GAME_BOY).returncode == 0
    assert rlmem("plan", GAME_BOY, "--ram", "4GB").returncode == 1
    assert rlmem("plan", GAME_BOY, "--vram", "4GB").returncode == 1
    assert rlmem("compare", GAME_BOY, "--ram", "4GB").returncode == 1


def test_json_reads_back_as_the_same_plan(rlmem_json):
    for path in ROOT.glob("examples/*/*.yaml"):
        data = rlmem_json("plan", str(path))
        again = json.loads(json.dumps(plan_to_dict(plan_from_dict(data))))
        assert again | {"findings": data["findings"]} == data


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50 * 2**20)


NONSENSE = {
    "directory": lambda path: path.mkdir(),
    "missing": lambda path: None,
    "empty": lambda path: path.write_text(""),
    "50 MB": _huge,
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 50),
    "tag": lambda path: path.write_text("!!python/object/apply:os.system ['true']"),
    "laughs": lambda path: path.write_text(
        "a: &a [1,1,1,1,1,1,1,1,1]\n"
        + "\n".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    ),
    "circle": lambda path: path.write_text("a: &a [*a]"),
    "negative": lambda path: path.write_text(
        "framework: sb3\nalgorithm: PPO\nenv: {observation: {shape: [-4]}, action: {discrete: 2}}"
    ),
    "absurd": lambda path: path.write_text(
        f"framework: sb3\nalgorithm: PPO\nenv: {{observation: {{shape: [{10**30}]}}, action: {{discrete: 2}}}}"
    ),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_gets_one_clear_line_and_exit_code_2(rlmem, tmp_path, kind):
    path = tmp_path / "run.yaml"
    NONSENSE[kind](path)
    started = time.perf_counter()
    result = rlmem("plan", str(path))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"rlmem: {path}")
    assert result.stderr.count("\n") == 1
    assert time.perf_counter() - started < 5


def test_a_mistyped_key_is_guessed_with_its_line(rlmem, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text((ROOT / GAME_BOY).read_text().replace("n_envs:", "n_env:"))
    result = rlmem("plan", str(path))
    assert f"{path}:8: unknown key `n_env` in `env`; did you mean `n_envs`?" in result.stderr


def test_wrong_sizes_on_the_command_line_are_explained(rlmem):
    result = rlmem("plan", GAME_BOY, "--ram", "lots")
    assert result.returncode == 2
    assert "a size must look like 16GB" in result.stderr


def test_check_selects_ignores_and_fails_on_errors_only(rlmem, rlmem_json):
    everything = rlmem_json("check", "examples/open_pit/full.yaml")["findings"]
    assert {"RLM015", "RLM033"} <= {finding["code"] for finding in everything}
    assert rlmem("check", "examples/open_pit/full.yaml").returncode == 1
    assert rlmem("check", "examples/open_pit/full.yaml", "--ignore", "RLM033").returncode == 0
    only = rlmem_json("check", "examples/open_pit/full.yaml", "--select", "RLM015")["findings"]
    assert [finding["code"] for finding in only] == ["RLM015"]
    assert rlmem("check", "examples/open_pit/full.yaml", "--select", "RLX").returncode == 2


def test_check_says_so_when_there_is_nothing(rlmem, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print('hello')\n")
    result = rlmem("check", str(script))
    assert result.stdout.strip() == "Nothing found."


def test_machine_imports_nothing_heavy():
    program = (
        "import sys; from rlmem.commands import main; main(['machine']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'gymnasium', 'stable_baselines3')))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert result.returncode == 0, result.stderr


def test_machine_prints_what_it_reads(rlmem, rlmem_json):
    machine = rlmem_json("machine")
    assert machine["schema"] == 1
    assert machine["ram_limit_bytes"] <= machine["ram_total_bytes"]
    assert "of RAM usable" in rlmem("machine").stdout


def test_json_is_one_document_without_ornament(rlmem):
    assert json.loads(rlmem("plan", GAME_BOY, "--json").stdout)["schema"] == 1
