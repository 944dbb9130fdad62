#!/usr/bin/env python3
"""test_hosts.py - hosts that scripts/hosts makes are isolated, can reach each other, and are removed completely."""
import os, subprocess, sys, time

HOSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "hosts")
NAME = f"t{os.getpid()}"
ECHO = """
import socket
s = socket.create_server(("", 7000)) if not {v6} else socket.create_server(("::", 7000), family=socket.AF_INET6)
while True:
    c, _ = s.accept()
    c.sendall(socket.gethostname().encode())
    c.close()
"""
ASK = """
import socket, sys, time
for _ in range(100):
    try:
        s = socket.create_connection((sys.argv[1], 7000), 1)
        print(s.recv(64).decode())
        sys.exit(0)
    except ConnectionRefusedError:
        time.sleep(0.05)
    except OSError:
        break
sys.exit(1)
"""


def hosts(*words, name=NAME):
    return subprocess.run([HOSTS, "--name", name, *words], capture_output=True, text=True, timeout=60)


def on(i, *words):
    return hosts("exec", str(i), "--", *words)


def ask(i, whom):
    row = on(i, sys.executable, "-c", ASK, whom)
    return row.stdout.strip() if row.returncode == 0 else None


def expect(what, got, wanted):
    if got != wanted:
        raise SystemExit(f"test_hosts: {what}: {got!r}, not {wanted!r}")


def each_host_is_itself():
    ids = [on(i, "cat", "/proc/sys/kernel/random/boot_id").stdout for i in (1, 2)]
    expect("boot ids are different", ids[0] != ids[1] and all(ids), True)
    expect("a boot id stays", on(1, "cat", "/proc/sys/kernel/random/boot_id").stdout, ids[0])
    expect("a host's name", on(2, "hostname").stdout, "host2\n")
    on(1, "sh", "-c", "echo x > /dev/shm/mine")
    expect("own shared memory", on(1, "cat", "/dev/shm/mine").stdout, "x\n")
    expect("not the other's", on(2, "cat", "/dev/shm/mine").returncode != 0, True)
    expect("exit status", on(1, "sh", "-c", "exit 7").returncode, 7)
    expect("as ssh", hosts("ssh", "root@host2", "hostname;", "exit", "3").stdout, "host2\n")
    expect("as ssh, by address", hosts("ssh", "10.77.0.1", "hostname").stdout, "host1\n")
    expect("as ssh, elsewhere", hosts("ssh", "elsewhere2", "hostname").returncode, 2)
    expect("no such host", on(3, "true").returncode, 2)


def hosts_reach_each_other(v6):
    server = subprocess.Popen([HOSTS, "--name", NAME, "exec", "1", "--", sys.executable, "-c", ECHO.format(v6=v6)])
    try:
        expect("by name" if not v6 else "by IPv6", ask(2, "fd77::1" if v6 else "host1"), "host1")
        if not v6:
            expect("pull the cable", hosts("link", "1", "down").returncode, 0)
            expect("no answer", ask(2, "10.77.0.1"), None)
            hosts("link", "1", "up")
            expect("an answer again", ask(2, "10.77.0.1"), "host1")
            hosts("freeze", "1")
            expect("a frozen host", ask(2, "10.77.0.1"), None)
            hosts("thaw", "1")
            expect("a thawed host", ask(2, "10.77.0.1"), "host1")
    finally:
        server.kill()
        server.wait()


def main():
    probe = hosts("check")
    if probe.returncode == 77:
        print(probe.stderr.strip())
        return 77
    expect("check", probe.returncode, 0)
    try:
        up = hosts("up", "2", "1gbit")
        expect("up", (up.returncode, up.stdout), (0, NAME + "\n"))
        expect("twice", hosts("up", "2").returncode, 2)
        each_host_is_itself()
        known = subprocess.run(["ip", "-n", f"{NAME}-1", "neigh", "show", "nud", "permanent"], capture_output=True, text=True)
        expect("neighbours are known, so that there may be many", "10.77.0.2 " in known.stdout, True)
        hosts_reach_each_other(False)
        if os.path.exists("/proc/net/if_inet6"):
            hosts_reach_each_other(True)
        expect("another rate", hosts("rate", "2", "100mbit").returncode, 0)
        expect("a wrong rate", hosts("rate", "2", "5furlongs").returncode, 2)
        sleeper = subprocess.Popen([HOSTS, "--name", NAME, "exec", "2", "--", "sleep", "60"])
        time.sleep(0.3)
    finally:
        hosts("down")
    expect("down ends what ran", sleeper.wait(10) != 0, True)
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    expect("nothing stays", any(line.startswith(NAME) for line in left.splitlines()), False)
    expect("half-made", hosts("up", "2", "5furlongs").returncode, 2)
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    expect("of it nothing stays", NAME in left, False)
    row = subprocess.run([HOSTS, "run", "2", "none", "--", "sh", "-c",
                          f'{HOSTS} exec 2 -- hostname; exit 5'], capture_output=True, text=True, timeout=60)
    expect("run", (row.returncode, row.stdout), (5, "host2\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
