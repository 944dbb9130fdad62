#!/usr/bin/env python3
"""test_latency.py - distant hosts: all their traffic passes a relay of this test, which delays each packet by 20 ms. cddp measures
about that latency, the traffic shows that it chose the algorithm for it, and the bits are those of the tree.

    test_latency.py BUILD
"""
import ctypes, fcntl, heapq, json, os, re, select, struct, subprocess, sys, tempfile, threading, time

BUILD = sys.argv[1]
HOSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "hosts")
NAME = f"l{os.getpid()}"
COUNT, DELAY_S, MTU = 4, 0.020, 60000
TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000


def fail(text):
    raise SystemExit(f"test_latency: {text}")


def hosts(*words):
    return subprocess.run([HOSTS, "--name", NAME, *words], capture_output=True, text=True, timeout=60)


def enter(place):
    if ctypes.CDLL(None, use_errno=True).setns(place, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "entering a network namespace")


def make_interface(host):
    """far0 with 10.88.0.HOST on the host; its packets are read from and written to the descriptor."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    with open(f"/run/netns/{NAME}-{host}") as place:
        enter(place.fileno())
    try:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", b"far0", IFF_TUN | IFF_NO_PI))
    finally:
        enter(home)
        os.close(home)
    for words in ("link set far0 mtu %d txqueuelen 100000 up" % MTU, f"addr add 10.88.0.{host}/24 dev far0", "link set eth0 down"):
        subprocess.run(["ip", "-n", f"{NAME}-{host}", *words.split()], check=True)
    return fd


class Relay(threading.Thread):
    """Hands each packet on to the host of its address, DELAY_S after it came."""

    def __init__(self, fds):
        super().__init__(daemon=True)
        self.fds, self.bytes, self.packets = fds, 0, 0

    def take(self, late):
        for fd in select.select(list(self.fds.values()), [], [], max(0.0, late[0][0] - time.monotonic()) if late else 0.2)[0]:
            try:
                packet = os.read(fd, 65536)
            except BlockingIOError:
                continue
            if packet[0] >> 4 == 4 and packet[19] in self.fds:
                self.packets += 1
                self.bytes += len(packet)
                heapq.heappush(late, (time.monotonic() + DELAY_S, self.packets, packet))

    def run(self):
        late = []
        while True:
            self.take(late)
            while late and late[0][0] <= time.monotonic():
                packet = heapq.heappop(late)[2]
                try:
                    os.write(self.fds[packet[19]], packet)
                except BlockingIOError:
                    pass  # lost, as a router would lose it


def bench(folder, size, calls):
    """(rank 0's figures, what rank 0 logged) of all-reduces that are checked, a rank a host."""
    ranks = []
    for rank in range(COUNT):
        env = dict(CDDP_RANK=str(rank), CDDP_WORLD_SIZE=str(COUNT), CDDP_LOCAL_RANK="0", CDDP_LOCAL_WORLD_SIZE="1",
                   CDDP_STORE=f"file://{folder}/store-{size}-{calls}", CDDP_JOB=f"{NAME}-{size}-{calls}", CDDP_TOKEN="a secret that is far away",
                   CDDP_SOCKET_IFNAME="far0", CDDP_LOG="info", CDDP_TIMEOUT_MS="100000", CDDP_HEARTBEAT_MS="60000",
                   CDDP_DEVICE="cpu")
        ranks.append(subprocess.Popen([HOSTS, "--name", NAME, "exec", str(rank + 1), "--", os.path.join(BUILD, "src/cddp-bench"),
                                       "all_reduce", "--check", "--in-place", "--transport", "tcp", "--min", str(size), "--max",
                                       str(size), "-n", str(calls), "-w", "0", "--json", "-"], env=dict(os.environ, **env),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        texts = [rank.communicate(timeout=120) for rank in ranks]
    except subprocess.TimeoutExpired:
        fail(f"{calls} calls of {size} bytes have not ended after 120 s")
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, (out, err) in zip(ranks, texts):
        if rank.returncode != 0:
            fail(f"status {rank.returncode}: {err}{out}")
    return json.loads(texts[0][0]), texts[0][1]


def sent(relay, folder, size, few, many):
    """How often a host's data left it in an all-reduce: what more calls send, so that joining does not count."""
    counts = []
    for calls in (few, many):
        before = relay.bytes
        figures, log = bench(folder, size, calls)
        if figures["wrong"] != 0 or figures["hosts"] != COUNT or figures["carrier"] != "tcp":
            fail(f"not the tree's bits between {COUNT} hosts: {figures}")
        counts.append(relay.bytes - before)
    return (counts[1] - counts[0]) / (many - few) / COUNT / size, figures, log


def look(relay, folder):
    times, figures, log = sent(relay, folder, 16384, 5, 45)
    latency = re.search(r"latency ([\d.]+) (us|ms|s)\b", log)
    if latency is None:
        fail(f"no latency in the log: {log}")
    latency_s = float(latency[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1}[latency[2]]
    if not 0.99 * DELAY_S <= latency_s <= 5 * DELAY_S:
        fail(f"a latency of {latency_s * 1e3:.1f} ms was measured, each packet takes {DELAY_S * 1e3:.0f}: {log}")
    if figures["rows"][0]["min_us"] < 0.99e6 * DELAY_S:
        fail(f"an all-reduce was faster than a packet: {figures}")
    print(f"latency {latency_s * 1e3:.1f} ms; 16 KiB: {times:.2f} times")
    # Everything to everybody, which is one wait; in the usual way, which is two, 1.5 times are sent.
    if not 2.9 <= times <= 3.6:
        fail(f"16 KiB were sent {times:.2f} times by each host, not 3 as where waiting costs most")
    times, _, _ = sent(relay, folder, 4 << 20, 1, 3)
    print(f"4 MiB: {times:.2f} times")
    if not 1.4 <= times <= 2.1:
        fail(f"4 MiB were sent {times:.2f} times by each host, not 1.5 as where sending costs most")


def main():
    probe = hosts("check")
    if probe.returncode == 77:
        print(probe.stderr.strip())
        return 77
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        print("skipped: there is no /dev/net/tun, by which packets come to the relay")
        return 77
    up = hosts("up", str(COUNT), "none")
    if up.returncode != 0:
        fail(f"up: {up.stderr}")
    try:
        try:
            fds = {host: make_interface(host) for host in range(1, COUNT + 1)}
        except OSError as error:
            print(f"skipped: no interface for a relay: {error}")
            return 77
        relay = Relay(fds)
        relay.start()
        with tempfile.TemporaryDirectory(prefix="cddp-latency-") as folder:
            look(relay, folder)
    finally:
        hosts("down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
