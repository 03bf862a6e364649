"""`python -m oncelog`: the command line, if the console script is not on the path."""

from oncelog.cli.main import main

main()
