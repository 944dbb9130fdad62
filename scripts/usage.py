"""usage - what Python scripts have instead of argparse, imported before what a machine may lack: with --help they print
their text and do nothing else."""
import sys


def show(text, words=None):
    """Print the text and end, if the command line asks for help."""
    words = sys.argv[1:] if words is None else words
    if "--help" in words or "-h" in words:
        print(text.strip())
        sys.exit(0)
