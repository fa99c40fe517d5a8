"""`python -m kerneltest`."""

from kerneltest.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
