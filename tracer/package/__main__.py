"""The command line as ``python -m stepscope``. This file is installed as ``stepscope/__main__.py``."""

from stepscope.viewer.cli import main

if __name__ == "__main__":
    main()
