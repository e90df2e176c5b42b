"""The command `tensorboard-torchexplorer`. Each subcommand imports what it needs when it runs."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence

import tensorboard_torchexplorer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code. Without `arguments` those of the process."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = options.run_command
    try:
        run(options)
    except (OSError, ValueError) as error:
        print(f"tensorboard-torchexplorer: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensorboard-torchexplorer",
        description="See what happens inside PyTorch models while they train.",
    )
    parser.add_argument("--version", action="version", version=tensorboard_torchexplorer.__version__)
    commands = parser.add_subparsers(required=True, metavar="command")

    show = commands.add_parser("show", help="start TensorBoard on a log directory and print its address")
    show.add_argument("logdir", help="directory that holds the runs")
    _add_server(show)
    show.set_defaults(run_command=_show)

    export = commands.add_parser("export", help="write one HTML file that shows runs without a server")
    export.add_argument("logdir", help="directory that holds the runs")
    export.add_argument("-o", "--output", default="report.html", help="the file (default report.html)")
    export.add_argument("--run", action="append", help="take only this run (name or glob; may be repeated)")
    export.add_argument("--model", action="append", help="take only this model; likewise")
    export.add_argument(
        "--steps", type=_steps, default=400, help="of longer histories keep that many steps (default 400)"
    )
    export.set_defaults(run_command=_export)

    demo = commands.add_parser("demo", help="train a small language model for a minute and show it")
    demo.add_argument("--steps", type=_count, default=300, help="optimizer steps (default 300)")
    demo.add_argument("--log-freq", type=_count, default=5, help="watch each how-many-th step (default 5)")
    demo.add_argument(
        "--logdir", default="runs/demo", help="where a directory for this run is made (default runs/demo)"
    )
    demo.add_argument("--no-serve", action="store_true", help="only train")
    _add_server(demo)
    demo.set_defaults(run_command=_demo)
    return parser


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=_port, default=0, help="port of this machine (default: a free one)")
    parser.add_argument("--open", action="store_true", help="open the tab in a browser, too")


def _show(options: argparse.Namespace) -> None:
    from tensorboard_torchexplorer import serve

    if not os.path.exists(options.logdir) and "://" not in options.logdir:
        print(f"There is no {options.logdir!r} yet; its runs will appear when there is.", file=sys.stderr)
    url = serve.launch(options.logdir, options.port)
    serve.announce(url, browser=options.open)
    print("Stop with Ctrl+C.", flush=True)
    serve.wait()


def _export(options: argparse.Namespace) -> None:
    from tensorboard_torchexplorer.report import export

    size = export(options.logdir, options.output, runs=options.run, models=options.model, steps=options.steps)
    print(f"Wrote {options.output}, {size / 1e6:.1f} MB")


def _demo(options: argparse.Namespace) -> None:
    from tensorboard_torchexplorer import demo

    run = os.path.join(options.logdir, time.strftime("%Y%m%d-%H%M%S"))
    demo.train(run, options.steps, options.log_freq)
    print(f"Recorded in {run}")
    if not options.no_serve:
        _show(options)


def _count(text: str) -> int:
    return _whole(text, 1, 1 << 31)


def _steps(text: str) -> int:
    return _whole(text, 2, 1 << 31)


def _port(text: str) -> int:
    return _whole(text, 0, 65535)


def _whole(text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got {text!r}")
    return int(text)
