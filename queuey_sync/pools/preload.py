"""What the forkserver imports before its first fork, so that children find the app imported.

Python's own preload drops the parent's ``sys.path``, and an error ends it without a word. So it is
given this module alone, which takes the path and the modules from the environment. An import that
fails here is nothing: each child imports the same and says what is wrong. Nothing else imports it.
"""

import importlib
import json
import os
import pickle
import sys
from contextlib import suppress

from queuey_sync.pools.child_process import PRELOAD_VARIABLE
from queuey_sync.pools.signals import end_with_the_parent, outlive_group_signals

outlive_group_signals()
_wanted = json.loads(os.environ.pop(PRELOAD_VARIABLE, "null"))
if _wanted is not None:  # a forkserver that replaces one that died is told nothing
    # Busy with this, it does not hear that nobody needs it any more.
    end_with_the_parent()
    if os.getppid() != _wanted["parent"]:
        raise SystemExit
    sys.path[:] = _wanted["path"]
    with suppress(BaseException):
        pickle.loads(bytes.fromhex(_wanted["preparation"]))  # noqa: S301 - our parent wrote it
    for _name in _wanted["modules"]:
        with suppress(BaseException):
            importlib.import_module(_name)
    end_with_the_parent(wanted=False)
