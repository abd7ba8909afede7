"""Record what PyTorch really does on a GPU: allocator traces to test the model with, and the fixed costs.

    python benchmarks/accuracy/record_cuda.py --out FOLDER [--all] [--only NAME ...]
    python benchmarks/accuracy/record_cuda.py --self-check      everything that runs without a GPU

Needs a CUDA device, torch and nothing else. Every part runs in a fresh child process, one at a time, under a
time limit, and writes its file when it is done; the whole takes less than five minutes. Written are:

- FOLDER/cuda_facts.json: what the context and the libraries take on the device and on the host, stage by
  stage, and what each convolution asks for beside its tensors.
- FOLDER/NAME.json.gz: every allocation and free of one workload, with the peaks that PyTorch counted. They
  belong into tests/data/cuda_traces/. Without --all there are seven, so that all is eight files.

Bias, and which way it pulls:
- The context is metered from a second process with its own context: what others start or end on the same
  device meanwhile goes into the figure. Run it on a device that nobody else uses.
- cuDNN chooses its algorithms by device, version and free memory; the workspaces are of this one device.
- Kernels are loaded when they are first used, so the context grows with what a program calls: the figure
  after one convolution is a lower bound for a training run.
"""

import argparse
import gzip
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from pathlib import Path

MIB = 2**20
UPDATES = 3
CHILD_LIMIT_S = 75
TOTAL_LIMIT_S = 285
LARGEST_FILE_BYTES = 300 * 1024
IMAGE, ATARI, VOLUME = (12, 144, 160), (4, 84, 84), (17, 49, 71, 58)
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel, stride
VOLUME_CHANNELS = (32, 64, 128)


# --- workloads: what a framework's update step does, without the framework ---------------------------------


def nature_cnn(torch, shape):
    nn, layers, channels = torch.nn, [], shape[0]
    for out, kernel, stride in NATURE:
        layers += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU()]
        channels = out
    convolutions = nn.Sequential(*layers, nn.Flatten())
    with torch.no_grad():
        flat = convolutions(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(convolutions, nn.Linear(flat, 512), nn.ReLU())


def volume_cnn(torch, shape):
    nn, layers, channels = torch.nn, [], shape[0]
    for out in VOLUME_CHANNELS:
        layers += [nn.Conv3d(channels, out, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(4), nn.Flatten(), nn.Linear(channels * 64, 256), nn.ReLU())


def train_on_policy(torch, device, features, width, observations, actions=8):
    """Collect a step, then update: a uint8 minibatch becomes floats, policy and value share their features."""
    nn = torch.nn
    model = nn.ModuleDict({"features": features, "policy": nn.Linear(width, actions), "value": nn.Linear(width, 1)})
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4, eps=1e-5)
    batch = observations.shape[0]
    with torch.no_grad():
        model["policy"](model["features"](observations[:4].to(device).float() / 255)).argmax(1).cpu()
    for _ in range(UPDATES):
        seen = observations.to(device)
        chosen = torch.randint(actions, (batch,)).to(device)
        old_log_prob, advantages, returns = (torch.randn(batch).to(device) for _ in range(3))
        hidden = model["features"](seen.float() / 255)
        distribution = torch.distributions.Categorical(logits=model["policy"](hidden))
        ratio = torch.exp(distribution.log_prob(chosen) - old_log_prob)
        surrogate = torch.min(advantages * ratio, advantages * torch.clamp(ratio, 0.8, 1.2)).mean()
        value_loss = nn.functional.mse_loss(returns, model["value"](hidden).flatten())
        loss = -surrogate + 0.5 * value_loss - 0.01 * distribution.entropy().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()


def run_nature_cnn(torch, device, batch):
    train_on_policy(
        torch, device, nature_cnn(torch, IMAGE), 512, torch.randint(255, (batch, *IMAGE), dtype=torch.uint8)
    )


def run_volume_cnn(torch, device, batch):
    train_on_policy(
        torch, device, volume_cnn(torch, VOLUME), 256, torch.randint(255, (batch, *VOLUME), dtype=torch.uint8)
    )


def last_of_lstm(torch, inputs, width):
    """Return an LSTM as a feature extractor: the last output of each sequence."""

    class LastOutput(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(inputs, width, num_layers=2, batch_first=True)

        def forward(self, sequences):
            return self.lstm(sequences)[0][:, -1]

    return LastOutput()


def run_lstm(torch, device, batch):
    observations = torch.randint(255, (batch, 64, 128), dtype=torch.uint8)
    train_on_policy(torch, device, last_of_lstm(torch, 128, 256), 256, observations)


def mlp(torch, inputs, outputs, width=256):
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


def run_sac(torch, device, batch, seen_width=376, action_width=17):
    """A soft actor-critic: two critics, their targets, an actor, a temperature; an optimizer for each."""
    functional = torch.nn.functional
    actor = mlp(torch, seen_width, 2 * action_width).to(device)
    critics, targets = (
        torch.nn.ModuleList(mlp(torch, seen_width + action_width, 1) for _ in range(2)).to(device) for _ in range(2)
    )
    targets.load_state_dict(critics.state_dict())
    temperature = torch.zeros(1, device=device, requires_grad=True)
    optimizers = [
        torch.optim.Adam(parameters, lr=3e-4)
        for parameters in (actor.parameters(), critics.parameters(), [temperature])
    ]

    def act(seen):
        mean, log_std = actor(seen).chunk(2, dim=1)
        distribution = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        raw = distribution.rsample()
        action = torch.tanh(raw)
        return action, (distribution.log_prob(raw) - torch.log(1 - action**2 + 1e-6)).sum(1, keepdim=True)

    def lowest(networks, seen, action):
        return torch.min(*(network(torch.cat([seen, action], dim=1)) for network in networks))

    def step(optimizer, loss):
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    for _ in range(UPDATES):
        seen, following = (torch.randn(batch, seen_width).to(device) for _ in range(2))
        done, reward = (torch.zeros(batch, 1).to(device) for _ in range(2))
        taken = torch.rand(batch, action_width).to(device)
        action, log_prob = act(seen)
        step(optimizers[2], -(temperature * (log_prob - action_width).detach()).mean())
        with torch.no_grad():
            next_action, next_log_prob = act(following)
            next_value = lowest(targets, following, next_action) - temperature.exp() * next_log_prob
            target = reward + (1 - done) * 0.99 * next_value
        now = [critic(torch.cat([seen, taken], dim=1)) for critic in critics]
        step(optimizers[1], 0.5 * sum(functional.mse_loss(value, target) for value in now))
        step(optimizers[0], (temperature.exp().detach() * log_prob - lowest(critics, seen, action)).mean())
        with torch.no_grad():
            for parameter, slow in zip(critics.parameters(), targets.parameters(), strict=True):
                slow.mul_(0.995).add_(parameter, alpha=0.005)


# name: (function, batch, batch of the self-check)
WORKLOADS = {
    "nature_cnn_256": (run_nature_cnn, 256, 8),
    "nature_cnn_2048": (run_nature_cnn, 2048, 8),
    "sac_mlp_256": (run_sac, 256, 8),
    "volume_cnn_16": (run_volume_cnn, 16, 1),
    "lstm_128": (run_lstm, 128, 4),
}
EXPANDABLE = "_expandable"
TRACES = [name + suffix for suffix in ("", EXPANDABLE) for name in WORKLOADS]
LEFT_OUT = ["nature_cnn_256_expandable", "sac_mlp_256_expandable", "lstm_128_expandable"]  # but for --all


# --- traces --------------------------------------------------------------------------------------------------


def events_from_trace(entries):
    """Return [1, key, bytes] and [0, key, bytes] for the allocations and frees among a device's trace entries."""
    events, alive, unknown = [], {}, 0
    for entry in entries:
        if entry["action"] == "alloc":
            key = alive[entry["addr"]] = (len(events), entry["size"])
            events.append([1, *key])
        elif entry["action"] == "free_completed":
            if entry["addr"] in alive:
                events.append([0, *alive.pop(entry["addr"])])
            else:
                unknown += 1
    if unknown:
        raise RuntimeError(f"{unknown} frees of what was allocated before the recording began")
    return events


def start_recording(torch):
    try:
        torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=1_000_000)
    except TypeError:
        torch.cuda.memory._record_memory_history(max_entries=1_000_000)


def trace_entries(torch):
    return torch.cuda.memory._snapshot()["device_traces"][0]


def record_trace(name):
    import torch

    start_recording(torch)
    function, batch, _ = WORKLOADS[name.removesuffix(EXPANDABLE)]
    torch.manual_seed(0)
    started = time.monotonic()
    function(torch, "cuda", batch)
    torch.cuda.synchronize()
    seconds = time.monotonic() - started
    stats = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    entries = snapshot["device_traces"][0]
    actions = {action: sum(entry["action"] == action for entry in entries) for action in {e["action"] for e in entries}}
    expandable = "segment_map" in actions
    if expandable != name.endswith(EXPANDABLE):
        print(f"  WARNING: {name}: expandable segments are {expandable}, against what was asked for", flush=True)
    return {
        **versions(torch),
        "workload": name.removesuffix(EXPANDABLE),
        "updates": UPDATES,
        "batch": batch,
        "expandable_segments": expandable,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "peak_requested_bytes": stats.get("requested_bytes.all.peak"),
        "reserved_at_end": torch.cuda.memory_reserved(),
        "allocated_at_end": torch.cuda.memory_allocated(),
        "segments": len(snapshot["segments"]),
        "streams": len({entry["stream"] for entry in entries if entry["action"] == "alloc"}),
        "actions": actions,
        "seconds": round(seconds, 2),
        "events": events_from_trace(entries),
    }


def write_trace(folder, name, result):
    packed = gzip.compress(json.dumps(result, separators=(",", ":")).encode(), mtime=0)
    if len(packed) > LARGEST_FILE_BYTES:
        print(f"  {name}: NOT written, {len(packed):,} B is more than {LARGEST_FILE_BYTES:,} B", flush=True)
        return
    (folder / f"{name}.json.gz").write_bytes(packed)
    allocated, reserved = (result[f"peak_{word}_bytes"] / MIB for word in ("allocated", "reserved"))
    print(
        f"  {name}: {len(result['events']):,} events, {result['streams']} stream(s), allocated {allocated:,.1f} MiB, "
        f"reserved {reserved:,.1f} MiB, {len(packed):,} B",
        flush=True,
    )


# --- facts: the context and the libraries --------------------------------------------------------------------


def versions(torch):
    cuda = torch.cuda.is_available()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "device": torch.cuda.get_device_name(0) if cuda else "cpu",
        "capability": list(torch.cuda.get_device_capability(0)) if cuda else None,
    }


def host_bytes():
    """Return what the kernel says this process has in memory."""
    wanted = {"VmRSS": "rss_bytes", "VmHWM": "hwm_bytes", "RssAnon": "rss_anon_bytes", "RssFile": "rss_file_bytes"}
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {wanted[key]: int(line[1]) * 1024 for line in lines if line and (key := line[0].rstrip(":")) in wanted}


def smi_used():
    """Return what nvidia-smi says is used on the first device, or None."""
    command = ["nvidia-smi", "--query-gpu=memory.used,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        used, total, driver = text.splitlines()[0].split(", ")
        return {"used_bytes": int(used) * MIB, "total_bytes": int(total) * MIB, "driver": driver}
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def stages(torch, device):
    """Go through the firsts of a training process, and yield the name of each when it is done."""
    functional = torch.nn.functional
    yield "import"
    if device == "cuda":
        torch.cuda.init()
        torch.cuda.synchronize()
    yield "context"
    one = torch.zeros(1, device=device)
    yield "tensor"
    square = torch.zeros(1024, 1024, device=device)
    yield "operands"
    product = square @ square
    yield "matmul"
    product = functional.linear(square, square, square[0])
    yield "linear_with_bias"
    images = torch.zeros(32, *ATARI, device=device)
    weight = torch.zeros(32, ATARI[0], 8, 8, device=device, requires_grad=True)
    yield "convolution_operands"
    output = functional.conv2d(images, weight, stride=4)
    yield "convolution_forward"
    output.sum().backward()
    yield "convolution_backward"
    weights = [torch.nn.Parameter(torch.zeros(256, 256, device=device)) for _ in range(4)]
    optimizer = torch.optim.Adam(weights)
    for parameter in weights:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    yield "adam_step"
    del one, product


def staged_process(device):
    """Print one line of JSON after each stage and wait for an answer, so that another process can look."""
    import torch

    for stage in stages(torch, device):
        report = {"stage": stage, **host_bytes()}
        if device == "cuda" and stage != "import":
            torch.cuda.synchronize()
            report["allocated_bytes"] = torch.cuda.memory_allocated()
            report["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
            report["reserved_bytes"] = torch.cuda.memory_reserved()
            torch.cuda.reset_peak_memory_stats()
        print(json.dumps(report), flush=True)
        sys.stdin.readline()


def context_facts(device="cuda"):
    """Watch another process pass its stages, with this one's own context as the meter."""
    import torch

    def driver_used():
        free, total = torch.cuda.mem_get_info()
        return total - free

    smi_before = smi_used()
    before = driver_used() if device == "cuda" else 0
    command = [sys.executable, __file__, "--child", "staged", "--device", device]
    found = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            if not line.startswith("{"):
                continue
            report = json.loads(line)
            if device == "cuda":
                report["driver_bytes"] = driver_used() - before
                report["context_bytes"] = report["driver_bytes"] - report.get("reserved_bytes", 0)
                if report["stage"] in ("context", "adam_step"):
                    report["smi"] = smi_used()
            found.append(report)
            child.stdin.write("\n")
            child.stdin.flush()
    return {**versions(torch), "driver_used_before_bytes": before, "smi_before": smi_before, "stages": found}


def workspace_facts(device="cuda"):
    """Say what cuBLAS keeps after a first product: what is allocated beyond operands and results."""
    import torch

    def allocated():
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    left, right = torch.zeros(512, 512, device=device), torch.zeros(512, device=device)
    if device != "cuda":
        return {}
    start_recording(torch)
    at, kept = [allocated()], {}
    for name in ("matmul", "linear_with_bias", "matmul_again"):
        result = torch.nn.functional.linear(left, left, right) if name == "linear_with_bias" else left @ left
        del result
        at.append(allocated())
        kept[name] = at[-1] - at[-2]
    sizes = [entry["size"] for entry in trace_entries(torch) if entry["action"] == "alloc"]
    configured = {key: os.environ.get(key) for key in ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE")}
    return {"kept_bytes": kept, "total_kept_bytes": at[-1] - at[0], "allocations": sizes, "environment": configured}


# --- facts: convolutions -------------------------------------------------------------------------------------


def convolution_cases():
    """Return (input shape, weight shape, stride, padding) of the networks' convolutions at several batch sizes."""
    cases = []
    for shape, batches in ((IMAGE, (8, 64, 256, 1024, 2048)), (ATARI, (8, 32, 256, 1024))):
        for batch in batches:
            channels, sides = shape[0], shape[1:]
            for out, kernel, stride in NATURE:
                cases.append(((batch, channels, *sides), (out, channels, kernel, kernel), stride, 0))
                channels, sides = out, tuple((side - kernel) // stride + 1 for side in sides)
    for batch in (1, 4, 16, 64):
        channels, sides = VOLUME[0], VOLUME[1:]
        for out in VOLUME_CHANNELS:
            cases.append(((batch, channels, *sides), (out, channels, 3, 3, 3), 1, 1))
            channels, sides = out, tuple(side // 2 for side in sides)
    return cases


def tensor_bytes(tensor):
    return tensor.numel() * tensor.element_size()


def metered(torch, device, call):
    """Return what a call made, the most it asked for beyond that at a time, and the sizes it asked for in order."""
    if device != "cuda":
        made = call()
        return made, 0, []
    torch.cuda.synchronize()
    seen = len(trace_entries(torch))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]  # before any rounding
    made = call()
    torch.cuda.synchronize()
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    sizes = [entry["size"] for entry in trace_entries(torch)[seen:] if entry["action"] == "alloc"]
    return made, peak - sum(tensor_bytes(tensor) for tensor in made if tensor is not None), sizes


def convolution_facts(torch, device, case):
    """Meter one convolution: forward, backward, and backward where the input needs no gradient; twice each."""
    input_shape, weight_shape, stride, padding = case
    dims = len(input_shape) - 2
    how = ([stride] * dims, [padding] * dims, [1] * dims, False, [0] * dims, 1)
    inputs, weight = torch.zeros(input_shape, device=device), torch.zeros(weight_shape, device=device)
    bias = torch.zeros(weight_shape[0], device=device)

    def forward():
        return [torch.ops.aten.convolution(inputs, weight, bias, *how)]

    def backward(output, needs_input_gradient):
        mask = [needs_input_gradient, True, True]
        return torch.ops.aten.convolution_backward(output, inputs, weight, [weight_shape[0]], *how, mask)

    known = {
        "input_shape": list(input_shape),
        "weight_shape": list(weight_shape),
        "stride": stride,
        "padding": padding,
        "input_bytes": tensor_bytes(inputs),
        "weight_bytes": tensor_bytes(weight),
    }
    first = metered(torch, device, forward)[1]
    (output,), extra, sizes = metered(torch, device, forward)
    known["output_bytes"] = tensor_bytes(output)
    rows = [known | extras("forward", None, first, extra, sizes)]
    for needed in (True, False):
        first = metered(torch, device, lambda needed=needed: backward(output, needed))[1]
        extra, sizes = metered(torch, device, lambda needed=needed: backward(output, needed))[1:]
        rows.append(known | extras("backward", needed, first, extra, sizes))
    return rows


def extras(direction, needs_input_gradient, first, second, sizes):
    return {
        "direction": direction,
        "needs_input_gradient": needs_input_gradient,
        "extra_bytes": max(first, second),
        "first_call_extra_bytes": first,
        "second_call_extra_bytes": second,
        "allocations": sizes,
    }


def all_convolution_facts():
    import torch

    start_recording(torch)
    settings = {
        "benchmark": torch.backends.cudnn.benchmark,
        "allow_tf32": torch.backends.cudnn.allow_tf32,
        "deterministic": torch.backends.cudnn.deterministic,
    }
    rows, failed, started = [], [], time.monotonic()
    for case in convolution_cases():
        if time.monotonic() - started > CHILD_LIMIT_S - 20:
            failed.append({"case": case, "error": "not reached in time"})
            continue
        try:
            rows += convolution_facts(torch, "cuda", case)
        except RuntimeError as error:
            failed.append({"case": case, "error": str(error)[:200]})
        torch.cuda.empty_cache()  # cuDNN looks at what is free when it chooses
    return {"settings": settings, "rows": rows, "failed": failed}


# --- the parent: one child after the other -------------------------------------------------------------------

FACTS = {"context": context_facts, "cublas": workspace_facts, "convolutions": all_convolution_facts}
RESULT_LINE = "RESULT "


def child(part, device):
    if part == "staged":
        staged_process(device)
        return
    result = FACTS[part]() if part in FACTS else record_trace(part)
    print(RESULT_LINE + json.dumps(result, separators=(",", ":")), flush=True)


def environment(part):
    changed = dict(os.environ)
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        changed.pop(name, None)
        if part.endswith(EXPANDABLE):
            changed[name] = "expandable_segments:True"
    return changed


def result_of(part, limit_s):
    """Return what a child found out, or None with the reason printed."""
    command = [sys.executable, __file__, "--child", part]
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, env=environment(part), capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"  {part}: FAILED, not done in {limit_s:.0f} s", flush=True)
        return None
    lines = done.stdout.splitlines()
    for line in lines:
        if not line.startswith(RESULT_LINE):
            print(line, flush=True)
    results = [line for line in lines if line.startswith(RESULT_LINE)]
    if done.returncode or not results:
        print(f"  {part}: FAILED with exit status {done.returncode}\n{done.stderr[-1500:]}", flush=True)
        return None
    print(f"  {part}: done in {time.monotonic() - started:.1f} s", flush=True)
    return json.loads(results[-1].removeprefix(RESULT_LINE))


def print_facts(part, result):
    if part == "context":
        for stage in result["stages"]:
            context, rss = (stage.get(key, 0) / MIB for key in ("context_bytes", "rss_bytes"))
            print(f"    {stage['stage']:22} context {context:8,.1f} MiB, host RSS {rss:8,.1f} MiB", flush=True)
    elif part == "cublas":
        print(f"    kept: {result['kept_bytes']}", flush=True)
    else:
        for row in result["rows"]:
            print(
                f"    {row['direction']:8} {row['input_shape']} x {row['weight_shape']}: "
                f"{row['extra_bytes'] / MIB:,.1f} MiB",
                flush=True,
            )
        print(f"    failed: {result['failed']}", flush=True)


def record(folder, parts):
    folder.mkdir(parents=True, exist_ok=True)
    started, facts, failed = time.monotonic(), {}, []
    for part in parts:
        left = TOTAL_LIMIT_S - (time.monotonic() - started)
        result = result_of(part, min(CHILD_LIMIT_S, left)) if left > 5 else None
        if result is None:
            failed.append(part)
        elif part in FACTS:
            facts[part] = result
            (folder / "cuda_facts.json").write_text(json.dumps({"schema": 1, **facts}, indent=1) + "\n")
            print_facts(part, result)
        else:
            write_trace(folder, part, result)
    print(f"{len(parts) - len(failed)} of {len(parts)} parts in {time.monotonic() - started:.0f} s; failed: {failed}")
    return 1 if failed else 0


def self_check():
    """Run on the CPU, at tiny sizes, all that needs no GPU."""
    import torch

    entries = [
        {"action": "segment_alloc", "addr": 0, "size": 2 * MIB},
        {"action": "alloc", "addr": 0, "size": 10},
        {"action": "free_requested", "addr": 0, "size": 10},
        {"action": "free_completed", "addr": 0, "size": 10},
        {"action": "alloc", "addr": 0, "size": 20},
    ]
    assert events_from_trace(entries) == [[1, 0, 10], [0, 0, 10], [1, 2, 20]]
    for name, (function, _, batch) in WORKLOADS.items():
        function(torch, "cpu", batch)
        print(f"  {name}: runs")
    for (_, *shape), *rest in {case[1]: case for case in convolution_cases()}.values():
        rows = convolution_facts(torch, "cpu", ((1, *shape), *rest))
        assert [row["direction"] for row in rows] == ["forward", "backward", "backward"]
    print(f"  {len(convolution_cases())} convolutions: run")
    found = [stage["stage"] for stage in context_facts("cpu")["stages"]]
    assert found[0] == "import", found
    assert found[-1] == "adam_step", found
    print(f"  stages: {', '.join(found)}")
    print(f"  {len(FACTS)} parts of facts; traces: {', '.join(TRACES)}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=os.environ.get("OUT"), help="folder to write to (default: $OUT)")
    parser.add_argument("--all", action="store_true", help="ten traces instead of seven")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*FACTS, *TRACES], help="only these parts")
    parser.add_argument("--self-check", action="store_true", help="run on the CPU what needs no GPU")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cuda", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        try:
            child(given.child, given.device)
        except Exception:
            traceback.print_exc()
            return 1
        return 0
    if given.self_check:
        return self_check()
    if given.out is None:
        parser.error("--out FOLDER must be given where $OUT is not set")
    parts = given.only or [*FACTS, *(name for name in TRACES if given.all or name not in LEFT_OUT)]
    return record(Path(given.out), parts)


if __name__ == "__main__":
    sys.exit(main())
