"""The command ``python -m compress``. What it does is in `demo.py`."""

import signal
import sys

if __name__ == "__main__":
    # Until the demo listens for it, Ctrl-C just ends the program: there is nothing to put in order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from compress.demo import main

    sys.exit(main())
