"""`python -m inkgrove` is the `inkgrove` command."""

from inkgrove.cli.main import main

if __name__ == "__main__":
    main()
