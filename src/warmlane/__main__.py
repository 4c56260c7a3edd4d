"""`python -m warmlane` is the `warmlane` command."""

from warmlane.cli import main

if __name__ == "__main__":
    main()
