#!/usr/bin/env python3
"""test_host_faults.py - faults of real packets between hosts that scripts/hosts makes: a job that can continue does, with the
right bits, and a job that cannot is ended on all hosts, which name the lost host.

    test_host_faults.py BUILD
"""
import os, re, signal, subprocess, sys, time

BUILD = sys.argv[1]
HOSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "hosts")
NAME = f"f{os.getpid()}"
RANKS = 3
HANG_S = 120  # only what hangs takes so long
LIMIT_S = 2  # CDDP_HEARTBEAT_MS
CONNECTS_S = 2, 6  # deadlines of what cannot be joined: before and after the kernel knows that there is no way
MOST_WAKES = 1000  # of a rank that waits, in a second
SLOW_S = 10  # more than what this machine, busy with other tests, takes to look


def hosts(*words):
    return subprocess.run([HOSTS, "--name", NAME, *words], capture_output=True, text=True, timeout=60)


def sure(*words):
    row = hosts(*words)
    if row.returncode != 0:
        raise SystemExit(f"test_host_faults: scripts/hosts {' '.join(words)}: {row.stderr}")


def start(port, *words):
    """cddp-bench, a rank a host."""
    ranks = []
    for rank in range(RANKS):
        env = [f"RANK={rank}", f"WORLD_SIZE={RANKS}", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=10.77.0.1",
               f"MASTER_PORT={port}", "CDDP_TOKEN=a secret of the test of faults", "CDDP_TIMEOUT_MS=60000", "CDDP_DEVICE=cpu",
               f"CDDP_HEARTBEAT_MS={LIMIT_S * 1000}"]
        ranks.append(subprocess.Popen([HOSTS, "--name", NAME, "exec", str(rank + 1), "--", "env", *env,
                                       os.path.join(BUILD, "src/cddp-bench"), "all_reduce", "--check", *words],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return ranks


def end(what, ranks):
    """(exit status, stderr) of each."""
    until, rows = time.monotonic() + HANG_S, []
    try:
        for rank in ranks:
            out, err = rank.communicate(timeout=max(1, until - time.monotonic()))
            rows.append((rank.returncode, err, out))
    except subprocess.TimeoutExpired:
        raise SystemExit(f"test_host_faults: {what}: rank {len(rows)} has not ended after {HANG_S} s") from None
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return rows


def under_way(what, ranks):
    """Wait until rank 0 has printed a row: by then all are connected. Returns what it printed."""
    text = ""
    while not text.lstrip().startswith(tuple("0123456789")):
        text = ranks[0].stdout.readline()
        if text == "":
            raise SystemExit(f"test_host_faults: {what}: it ended before it began: {ranks[0].communicate()[1]}")


def the_cause_is_told_to_all_ranks_of_a_host(connect_s, port):
    """By an interface that leads nowhere leaders do not connect. The other ranks of their hosts wait for them, asleep, and
    say what the leaders know: whom they could not reach, where, and why."""
    ranks = []
    for host in (1, 2):
        for words in (["link", "add", "aaa0", "type", "veth", "peer", "name", "aaa1"], ["link", "set", "aaa1", "up"],
                      ["addr", "add", f"10.66.0.{host}/24", "dev", "aaa0"], ["link", "set", "aaa0", "up"]):
            subprocess.run(["ip", "-n", f"{NAME}-{host}", *words], check=True)
    for rank in range(6):
        env = [f"RANK={rank}", "WORLD_SIZE=6", f"LOCAL_RANK={rank % 3}", "LOCAL_WORLD_SIZE=3", "MASTER_ADDR=10.77.0.1",
               f"MASTER_PORT={port}", "CDDP_TOKEN=a secret of the test of faults", f"CDDP_TIMEOUT_MS={connect_s * 1000}",
               "CDDP_SOCKET_IFNAME=aaa0", "CDDP_DEVICE=cpu"]
        ranks.append(subprocess.Popen([HOSTS, "--name", NAME, "exec", str(1 + rank // 3), "--", "env", *env,
                                       os.path.join(BUILD, "src/cddp-bench"), "barrier"],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    for rank, process in enumerate(ranks):
        text = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status == 0 or not re.search(r"on host host[12] cannot be connected: 10\.66\.0\.[12] port \d+: ", text):
            raise SystemExit(f"test_host_faults: no way between hosts: rank {rank} ended with {process.returncode}: {text}")
        if usage.ru_nvcsw > connect_s * MOST_WAKES:
            raise SystemExit(f"test_host_faults: rank {rank} woke {usage.ru_nvcsw} times while it waited for its leader")
        if rank % 3 == 1:
            print(f"no way between hosts: {usage.ru_nvcsw} wake-ups: {text.strip()[:200]}")
    for host in (1, 2):
        subprocess.run(["ip", "-n", f"{NAME}-{host}", "link", "del", "aaa0"], check=True)


def loss_is_borne():
    sure("drop", "2", "both", "5")
    rows = end("5 % loss", start(7001, "--min", "4", "--max", "1M", "--factor", "64", "-n", "3", "-w", "0"))
    sure("drop", "2", "both", "0")
    for rank, (status, err, _) in enumerate(rows):
        if status != 0:
            raise SystemExit(f"test_host_faults: 5 % loss: rank {rank} ended with {status}: {err}")


def slowness_is_borne():
    """A host whose processes stand still for longer than the limit of silence is late, not lost."""
    ranks = start(7002, "--min", "1K", "--max", "64K", "--factor", "64", "-n", "200", "-w", "0")
    under_way("a slow host", ranks)
    pids = [pid for pid in subprocess.run(["ip", "netns", "pids", f"{NAME}-2"], capture_output=True,
                                          text=True).stdout.split()]
    for pid in pids:
        os.kill(int(pid), signal.SIGSTOP)
    time.sleep(5)
    for pid in pids:
        os.kill(int(pid), signal.SIGCONT)
    for rank, (status, err, _) in enumerate(end("a slow host", ranks)):
        if status != 0:
            raise SystemExit(f"test_host_faults: a slow host: rank {rank} ended with {status}: {err}")


def silence(what, text):
    """After how many seconds in which nothing was heard of it the host was given up, as the failure says."""
    said = re.search(r"has not answered for ([\d.]+) s, and may be silent for ([\d.]+) s \(CDDP_HEARTBEAT_MS\)", text)
    if said is None or float(said[2]) != LIMIT_S:
        raise SystemExit(f"test_host_faults: {what}: it does not say for how long the host was silent: {text}")
    return float(said[1])


def is_lost(what, port, break_it, mend_it):
    ranks = start(port, "--min", "64K", "--max", "128M", "-w", "0", "-n", "1000")
    under_way(what, ranks)
    sure(*break_it)
    until = time.monotonic() + HANG_S
    while ranks[0].poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    sure(*mend_it)
    rows = end(what, ranks)
    for rank in (0, 2):
        if rows[rank][0] == 0 or "host2" not in rows[rank][1]:
            raise SystemExit(f"test_host_faults: {what}: rank {rank} ended with {rows[rank][0]}: {rows[rank][1]}")
    if rows[1][0] == 0:
        raise SystemExit(f"test_host_faults: {what}: the rank on the lost host ended well")
    # whichever side notices first says it; to the other its end may still come
    heard = silence(what, "".join(err for _, err, _ in rows))
    if heard > LIMIT_S + SLOW_S or heard < LIMIT_S:
        raise SystemExit(f"test_host_faults: {what}: given up after {heard} s of silence: {rows}")
    print(f"{what}: {rows[0][1].strip().splitlines()[-1][:240]}")


def main():
    probe = hosts("check")
    if probe.returncode == 77:
        print(probe.stderr.strip())
        return 77
    if subprocess.run(["sh", "-c", "command -v nft"], capture_output=True).returncode != 0:
        print("skipped: there is no nft, which drops packets")
        return 77
    try:
        up = hosts("up", str(RANKS), "1gbit")
        if up.returncode != 0:
            raise SystemExit(f"test_host_faults: up: {up.stderr}")
        if hosts("drop", "2", "both", "0").returncode != 0:
            print("skipped: this kernel's nftables cannot drop packets at random")
            return 77
        for i, connect_s in enumerate(CONNECTS_S):
            the_cause_is_told_to_all_ranks_of_a_host(connect_s, 7006 + i)
        loss_is_borne()
        slowness_is_borne()
        is_lost("what goes to a host is lost", 7003, ("drop", "2", "in", "100"), ("drop", "2", "in", "0"))
        is_lost("what comes from a host is lost", 7004, ("drop", "2", "out", "100"), ("drop", "2", "out", "0"))
        is_lost("a pulled cable", 7005, ("link", "2", "down"), ("link", "2", "up"))
    finally:
        hosts("down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
