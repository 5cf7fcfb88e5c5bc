"""Our training step beside PyTorch's, in turns, on one machine: medians of whole processes.

    python3 tests/bench/compare_step.py build/release/bench/step_bench [--python python3]

`--python` is an interpreter that has PyTorch. Prints a line a run and the ratios at the end. Ours
computes the loss in two chunks of rows (step_bench --loss-chunk, a tunable of `fused`; with all
rows at once its peak is 16 MB higher). Both spin at barriers: on a machine with other work the
times mean nothing, the peaks stay as they are.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

PEER = pathlib.Path(__file__).with_name("peer_torch.py")


def run(command):
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="2")
    parser.add_argument("--dtypes", default="fp32,bf16")
    options = parser.parse_args()
    rows = {"torch": []}
    for dtype in options.dtypes.split(","):
        rows[dtype] = []
    for _ in range(options.rounds):
        for name, results in rows.items():
            command = ([options.python, str(PEER)] if name == "torch"
                       else [options.bench, "--dtype", name])
            result = run(command + ["--threads", options.threads])
            results.append(result)
            print(f"{name:8} {result['tokens_per_second']:9.1f} tokens/s", flush=True)

    def median(name, key):
        return statistics.median(result[key] for result in rows[name])

    ours, peer = median("fp32", "tokens_per_second"), median("torch", "tokens_per_second")
    print(f"fp32 against PyTorch     {ours / peer:.2f} x ({ours:.0f} and {peer:.0f} tokens/s)")
    print(f"share of bare products   {median('fp32', 'bare_share'):.3f}")
    print("peak allocated           "
          f"{median('fp32', 'peak_allocated_bytes') / median('torch', 'peak_allocated_bytes'):.3f}"
          " of PyTorch's")
    if "bf16" in rows:
        print(f"bf16 against our fp32    {median('bf16', 'tokens_per_second') / ours:.2f} x")


if __name__ == "__main__":
    main()
