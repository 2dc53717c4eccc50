"""``python -m rath_bridge`` is ``rath-bridge``."""

from rath_bridge.cli import main

if __name__ == "__main__":
    main()
