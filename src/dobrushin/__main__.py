"""`python -m dobrushin`: the command line."""

from dobrushin.cli import main

if __name__ == "__main__":
    main()
