"""Start TensorBoard on a free port of this machine and print the address that opens the TorchExplorer tab.

python examples/serve.py runs
"""

from __future__ import annotations

import argparse
import threading

from tensorboard import program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("logdir", help="directory that holds the runs")
    options = parser.parse_args()

    server = program.TensorBoard()
    server.configure(argv=["tensorboard", "--logdir", options.logdir, "--host", "127.0.0.1", "--port", "0"])
    print(f"TorchExplorer: {server.launch()}#torchexplorer  (stop with Ctrl+C)", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
