"""`python -m inkgrove` is the `inkgrove` command."""

from inkgrove.cli.start import main

if __name__ == "__main__":
    main()
