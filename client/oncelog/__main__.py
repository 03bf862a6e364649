"""`python -m oncelog`: the command line, where the console script is not on the path."""

from oncelog.cli.main import main

main()
