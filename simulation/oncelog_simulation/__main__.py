"""Runs the command line: `python -m oncelog_simulation`."""

from oncelog_simulation.command import main

if __name__ == "__main__":
    main(prog_name="python -m oncelog_simulation")
