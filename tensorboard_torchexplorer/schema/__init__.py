"""The contract between the training process, the event file, the backend and the tab.

Standard library only. `frontend/src/schema.ts` is generated from this package
(`python -m tensorboard_torchexplorer.schema_ts`), so a name means the same in Python, in JSON, in
TypeScript and on screen.

The cast. A *module* is an `nn.Module` object of the watched model. An *invocation* (a `Node`) is one
call of a module within one forward of the root; a module called twice is two nodes that share one
`Module` entry. A *level* is what one invocation's forward did: its child invocations, its input and
output placeholders, and the edges between them. A *series* is the history of one tensor: one row
(a histogram with statistics) per logged step.
"""

from .answers import *  # noqa: F403
from .graph import *  # noqa: F403
from .rows import *  # noqa: F403
