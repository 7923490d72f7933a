"""`python -m dobrushin.cli`."""

from dobrushin.cli import main

main()
