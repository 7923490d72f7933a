"""Run the command line as `python -m dobrushin.cli`."""

from dobrushin.cli import main

main()
