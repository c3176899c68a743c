"""`python -m privit` is the command `privit`."""

import sys

from privit.cli import main

sys.exit(main())
