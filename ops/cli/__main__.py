"""`python -m dalsegno.ops.cli`: the same as the console script."""

from dalsegno.ops.cli import main

if __name__ == "__main__":
    main()
