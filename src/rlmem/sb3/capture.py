"""A training script run in a child process up to its first `learn()`, and the model read there.

The script is not changed and nothing is trained: where it calls `learn()` of any Stable-Baselines3 or sb3-contrib
model, the model is read, and the process ends on the spot, with its environment workers. `finally` blocks and exit
handlers of the script do not run. Buffers are built without memory, so one larger than the machine is no obstacle.

Guarded, so that nothing is left behind or lost: bytecode is not cached, Weights & Biases is off, plots are not
shown, standard input is empty, temporary files are removed, and what the script writes or removes from Python in
its own process is kept out of the user's folders (see `rlmem.sb3.write_guard` for what is not).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

from rlmem.errors import MissingExtra, ScriptError
from rlmem.plan.buffers import BufferArray
from rlmem.plan.layers import Stack
from rlmem.plan.policies import PolicyCost
from rlmem.run import FrameworkRun, run_from_mapping, write_run
from rlmem.run.child import contents, end_descendants, wait_and_end

if TYPE_CHECKING:
    from rlmem.sb3.reading import ModelReading
    from rlmem.sb3.script_run import Captured

TIMEOUT_S: Final = 60.0
_LONGEST: Final = 1000
_SAMPLE_S: Final = 10.0
"""How long a lean buffer's environment is stepped: within the time that a script has to come to `learn()`."""
_EXTRAS: Final = ("stable_baselines3", "sb3_contrib", "torch", "gymnasium", "ale_py")
_QUIET: Final = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "WANDB_MODE": "disabled", "MPLBACKEND": "Agg"}


def capture_script(
    script: Path, arguments: list[str], *, timeout_s: float = TIMEOUT_S, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what the model is that the script would train, as `describe` puts it; ``options`` are handed to it.

    The script runs in the current directory with its own folder first on the path, as ``python script`` would.
    """
    ended = run_child(__name__, script, arguments, timeout_s=timeout_s, options=options or {})
    if ended.code is None and not ended.reply:
        raise ScriptError(
            f"{script}: learn() was not reached within {timeout_s:g} s; --timeout gives it longer" + ended.last_words
        )
    return ended.answer(script, place="before any learn()")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEnd:
    """How the child of a script ended: with a reply or without; ``code`` is None where it had to be ended."""

    code: int | None
    reply: str
    printed: str

    @property
    def last_words(self) -> str:
        return _last(self.printed)

    def answer(self, script: Path, *, place: str) -> dict[str, Any]:
        """Return what the child answered; its failures are raised. ``place`` says where it died without a word."""
        if not self.reply:
            raise ScriptError(f"{script}: its process {_ending(self.code or 0)} {place}" + self.last_words)
        answer: dict[str, Any] = json.loads(self.reply)
        _raise_failure(answer, script, self.printed)
        return answer


def run_child(
    module: str,
    script: Path,
    arguments: list[str],
    *,
    timeout_s: float,
    options: Mapping[str, Any],
    started: Callable[[int], None] | None = None,
) -> ScriptEnd:
    """Run the script in a child whose main program is ``module``; ``started`` is given its process id."""
    if not script.is_file():
        raise ScriptError(f"{script}: no such script")
    with TemporaryDirectory(prefix="rlmem-") as folder, TemporaryFile() as reply, TemporaryFile() as output:
        question = {"script": str(script), "arguments": arguments, "folder": folder, "options": dict(options)}
        child = _start(module, question, reply, output)
        if started is not None:
            started(child.pid)
        code = wait_and_end(child, timeout_s=timeout_s)
        return ScriptEnd(code=code, reply=contents(reply), printed=contents(output))


def reading_from(answer: Mapping[str, Any]) -> ModelReading:
    """Return the reading of the model that `capture_script` answered with."""
    from rlmem.sb3.reading import ModelReading

    run = run_from_mapping(answer["run"])
    assert isinstance(run, FrameworkRun)  # noqa: S101 - a model is never a generic run
    stacks = {
        name: Stack(**(answer["cost"][name] | {"output": tuple(answer["cost"][name]["output"])}))
        for name in ("online", "targets", "graph")
    }
    return ModelReading(
        run=run,
        arrays=tuple(BufferArray(**array) for array in answer["arrays"]),
        cost=PolicyCost(**(answer["cost"] | stacks)),
        notes=tuple(answer["notes"]),
    )


def _start(module: str, question: Mapping[str, Any], reply: IO[bytes], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the child, in a session of its own so that all of it can be ended."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(reply.fileno()), json.dumps(question)],
        pass_fds=(reply.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=os.environ | _QUIET | {"TMPDIR": question["folder"]},
        start_new_session=True,
    )


def _last(printed: str) -> str:
    line = printed.strip().rpartition("\n")[2].strip()
    return f"; its last words: {line[:_LONGEST]}" if line else ""


def _ending(code: int) -> str:
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"


def _raise_failure(answer: Mapping[str, Any], script: Path, printed: str) -> None:
    """Raise what the child says kept it from `learn()`."""
    place = f"{script}:{answer['line']}" if answer.get("line") else str(script)
    match answer.get("failure"):
        case None:
            return
        case "missing" if answer["module"] in _EXTRAS:
            raise MissingExtra(library=answer["module"], extra="sb3", purpose=f"running {script}")
        case "missing":
            raise ScriptError(
                f"{place}: the module {answer['module']} is not installed; rlmem runs the script to read it"
            )
        case "input":
            raise ScriptError(f"{place}: the script asks for input; give what it needs as arguments after --")
        case "exit":
            raise ScriptError(
                f"{place}: the script ended with exit code {answer['code']} before any learn(); "
                f"its arguments go after --" + _last(printed)
            )
        case "no learn":
            raise ScriptError(f"{place}: the script ended without calling learn(){_built(answer['built'])}")
        case "unread":
            raise ScriptError(f"{place}: the model that it trains could not be read: {answer['error']}")
        case "in training":
            raise ScriptError(f"{place}: the script {answer['error']} while it trained" + _last(printed))
        case _:
            raise ScriptError(f"{place}: the script raised {answer['error']} before any learn()")


def _built(models: list[str]) -> str:
    if models:
        return f"; it builds {', '.join(models)} but does not train"
    return " of a Stable-Baselines3 model; what no adapter knows is described in a run file with `framework: generic`"


def describe(captured: Captured, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer about a captured model: its reading, and what its processes take so far.

    Runs in the child, where ``captured.model`` is alive. `capture_script` hands ``options`` through.
    """
    from dataclasses import replace

    from rlmem.sb3.callback_reading import callback_names, read_checkpoint, read_evaluation
    from rlmem.sb3.reading import read_model

    reading = read_model(captured.model, total_timesteps=captured.total_timesteps)
    run = replace(
        reading.run,
        name=captured.script.name,
        evaluation=read_evaluation(captured.callback),
        checkpoint=read_checkpoint(captured.callback),
    )
    workers, worker_notes = captured.workers()
    evaluating, evaluation_notes = captured.evaluation_workers()
    sizes = _sizes(workers, evaluating)  # before the trace, which leaves something behind
    return {
        **(_traced(captured.model, run) if options.get("trace") else {}),
        **(_sampled(captured.model, run) if run.buffer.is_lean and options.get("trace") else {}),
        "run": write_run(run),
        "arrays": [asdict(array) for array in reading.arrays],
        "cost": asdict(reading.cost),
        "notes": [*reading.notes, *worker_notes, *evaluation_notes, *captured.notes],
        "callbacks": list(callback_names(captured.callback)),
        "workers": len(workers),
        **sizes,
    }


def _sizes(workers: tuple[int, ...], evaluating: tuple[int, ...]) -> dict[str, Any]:
    """Return what this process takes, alone and with all that it started."""
    from rlmem.observe import process_tree, pss_bytes, rss_bytes

    pid = os.getpid()
    shares = {each: pss_bytes(each) for each in {*process_tree(pid), *workers, *evaluating}}
    return {
        "rss_bytes": rss_bytes(pid),
        "pss_tree_bytes": sum(shares.values()),
        "worker_pss_bytes": [shares[each] for each in workers],
        "evaluation_worker_pss_bytes": [shares[each] for each in evaluating],
    }


def _traced(model: Any, run: FrameworkRun) -> dict[str, Any]:
    """Return the trace of the captured model's update, or why there is none."""
    from rlmem.plan.framework import rows_per_update
    from rlmem.plan.trace import trace_to_dict
    from rlmem.sb3.fake_training import trace_on_gpu, trace_update

    if run.spec.family == "search":
        return {}
    trace = trace_on_gpu if run.device.startswith("cuda") else trace_update
    try:
        return {"trace": trace_to_dict(trace(model, rows=rows_per_update(run)))}
    except Exception as error:  # user code runs in the update: whatever it raises is said, and the plan goes on
        return {"trace_error": f"{type(error).__name__}: {error}"[:300]}


def _sampled(model: Any, run: FrameworkRun) -> dict[str, Any]:
    """Return how the columns of a lean buffer grow on the script's own environment, which ends with this process."""
    from rlmem.plan.lean_buffers import sample_to_dict
    from rlmem.sb3.column_sampling import ColumnKind, sample_columns

    normalizing = model.get_vec_normalize_env() if run.spec.off_policy else None
    env = model.env if normalizing is None else normalizing.venv  # replay buffers store what was not normalised yet
    try:
        return {"sample": sample_to_dict(sample_columns(env, ColumnKind.of(run), most_seconds=_SAMPLE_S))}
    except Exception as error:  # user code steps: whatever it raises is said, and the plan goes on
        return {"sample_error": f"{type(error).__name__}: {error}"[:300]}


def _reply(question: dict[str, Any], file: int) -> None:
    """Run the script and answer from where it calls `learn()`; the child ends here either way."""
    try:
        from rlmem.sb3.script_run import ScriptFailure, run_until_learn
    except ModuleNotFoundError as error:
        finish({"failure": "missing", "module": (error.name or "").partition(".")[0]}, file)
        return
    options = question["options"]
    try:
        run_until_learn(
            Path(question["script"]),
            question["arguments"],
            folder=Path(question["folder"]),
            then=lambda captured: finish(_described(captured, options), file),
        )
    except ScriptFailure as failure:
        finish(failure.answer, file)


def _described(captured: Captured, options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return describe(captured, options)
    except Exception as error:  # the process edge: reported to the parent, not lost in the script's own handlers
        return {"failure": "unread", "error": f"{type(error).__name__}: {error}"[:_LONGEST]}


def finish(answer: Mapping[str, Any], file: int) -> None:
    """Write the answer and end this process with all that it started, wherever in the script it stands."""
    data = json.dumps(answer).encode()
    os.ftruncate(file, 0)
    os.pwrite(file, data, 0)
    end_descendants(os.getpid())
    if os.getpid() != os.getsid(0):  # learn() was called in a process of the script's own
        os.killpg(os.getsid(0), signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    # Not from here but from the module by its name: the script is about to become `__main__`.
    from rlmem.sb3 import capture

    capture._reply(json.loads(sys.argv[2]), int(sys.argv[1]))
