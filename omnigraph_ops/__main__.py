"""`python -m omnigraph_ops`: the same as the console script."""

import sys

from omnigraph_ops.cli import main

sys.exit(main())
