"""``python -m jupyter_sandbox`` is ``jupyter sandbox``."""

from jupyter_sandbox.cli import main

if __name__ == "__main__":
    main()
