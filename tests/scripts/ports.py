"""ports.py - ports of this machine for tests."""
import itertools, os, socket

COUNT = itertools.count()


def free_port():
    """None of those that the kernel gives to clients: it might soon be another program's (support_free_port())."""
    for number in COUNT:
        port = 12000 + (os.getpid() * 16 + number) % 20000
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
