"""`python -m tensorboard_torchexplorer`, where the command is not on the path."""

import sys

from tensorboard_torchexplorer.cli import main

sys.exit(main())
