"""cddp-run, the launcher, as a wheel brings it: `cddp-run --nproc 2 -- python3 train.py`. It is a program in C; this starts it."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cddp-run")
    os.execv(program, [program, *sys.argv[1:]])
