"""What many panels cost in the tab: 64 heat maps of 200 steps, all in view, drawn again and scrubbed
through in Chromium. Prints a table.

python -m benchmarks.panels
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from tests import record_graphs, records
from tests.tensorboard_server import ROOT, tensorboard_server

RUN, MODEL = "panels", "model"
STEPS = 200
# A linear layer has eight: values and gradients of input, output, weight and bias.
PANELS = 8
GOALS = {"theme": 40, "scrub": 16, "hover": 16}
WORDS = {
    "theme": "all drawn again in other colours",
    "scrub": "a step of the scrubber",
    "hover": "a move of the pointer in a heat map",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        with SummaryWriter(Path(scratch) / RUN) as writer:
            records.write(writer, records.Run(record_graphs.small(MODEL, layers=PANELS)), range(STEPS))
        with tensorboard_server(scratch) as server:
            server.wait_for_steps(RUN, MODEL, STEPS - 1)
            measured = json.loads(
                subprocess.run(
                    ["node", "bench/panels.mjs", server.url, RUN, MODEL, str(PANELS)],
                    cwd=ROOT / "frontend",
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                ).stdout
            )
    print(f"\n{measured['maps']} heat maps of {STEPS} steps, all in view\n")
    print("| what | main thread, ms | frame, ms | goal, ms |\n|---|---|---|---|")
    for name, goal in GOALS.items():
        busy, frame = measured[name]
        print(f"| {WORDS[name]} | {busy:.1f} | {frame:.1f} | {goal} |")
    print("\nThe best of some rounds. Main thread: script, style and layout, without the painting.")


if __name__ == "__main__":
    main()
