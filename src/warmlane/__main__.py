"""`python -m warmlane` is the `warmlane` command."""

import sys

from warmlane.cli import main

if __name__ == "__main__":
    sys.exit(main())
