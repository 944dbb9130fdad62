#!/usr/bin/env python3
"""test_host_links.py - links that are down for a while, and hosts that stand still for a while: jobs of cddp-run on hosts
that scripts/hosts makes continue, with the right results, for any duration below the limit of silence.

    test_host_links.py BUILD
"""
import os, subprocess, sys, threading, time

BUILD = sys.argv[1]
HOSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "hosts")
LIMIT_MS = 1000  # CDDP_HEARTBEAT_MS, the least that cddp-run takes
DEFAULT_MS = 10000
TIMES = 10
GAP_S = 1  # between two outages
HANG_S = 200  # only what hangs takes so long
TRIES = 3  # of a job that this machine was too busy to disturb as it should
# A tenth of a second for each, by the rate of the link, so that a job lasts for some outages on any machine.
BENCH = ["all_reduce", "--check", "--min", "1M", "--max", "1M", "-n", "40", "-w", "0"]


class Network:
    """Two hosts with a job on them."""

    def __init__(self, name):
        self.name, self.nodes, self.port = name, [], 7100

    def hosts(self, *words):
        row = subprocess.run([HOSTS, "--name", self.name, *words], capture_output=True, text=True, timeout=60)
        if row.returncode != 0:
            raise RuntimeError(f"scripts/hosts {' '.join(words)}: {row.stderr}")

    def start(self, limit_ms):
        self.port += 1
        env = ["CDDP_TOKEN=a-token-of-this-test-long-enough", "CDDP_DEVICE=cpu", "CDDP_STRAGGLER_MS=0"]
        env += [f"CDDP_HEARTBEAT_MS={limit_ms}"] if limit_ms is not None else ["-u", "CDDP_HEARTBEAT_MS"]
        env.sort(key=lambda word: word in ("-u", "CDDP_HEARTBEAT_MS"), reverse=True)
        self.nodes = [subprocess.Popen(
            [HOSTS, "--name", self.name, "exec", str(node + 1), "--", "env", *env,
             os.path.join(BUILD, "launcher/cddp-run"), "--nnodes", "2", "--node-rank", str(node), "--nproc", "1",
             "--rdzv", f"tcp://10.77.0.1:{self.port}", "--", os.path.join(BUILD, "src/cddp-bench"), *BENCH],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for node in range(2)]

    def runs(self):
        return all(node.poll() is None for node in self.nodes)

    def end(self):
        """What was said, and whether all is well."""
        until, texts = time.monotonic() + HANG_S, []
        try:
            for node in self.nodes:
                out, err = node.communicate(timeout=max(1, until - time.monotonic()))
                texts.append(f"node {len(texts)} ended with {node.returncode}: {out[-300:]}{err[-900:]}")
        except subprocess.TimeoutExpired:
            return f"node {len(texts)} has not ended after {HANG_S} s", False
        finally:
            for node in self.nodes:
                node.kill()
                node.wait()
        return "\n".join(texts), all(node.returncode == 0 for node in self.nodes)

    def pull(self, host, seconds):
        """Returns for how long the link was down at most."""
        begin = time.monotonic()
        self.hosts("link", str(host), "down")
        time.sleep(seconds)
        self.hosts("link", str(host), "up")
        return time.monotonic() - begin

    def freeze(self, host, seconds):
        begin = time.monotonic()
        self.hosts("freeze", str(host))
        time.sleep(seconds)
        self.hosts("thaw", str(host))
        return time.monotonic() - begin


def is_borne(network, disturb, seconds, times, limit_ms):
    """Jobs, one after the other, until they have been disturbed @times times; then the last one may end."""
    done, tries = 0, 0
    while done < times:
        longest = 0.0
        network.start(limit_ms)
        time.sleep(GAP_S)
        while network.runs() and done < times:
            longest = max(longest, disturb(1 + done % 2, seconds))
            done += 1
            time.sleep(GAP_S)
        text, is_well = network.end()
        if not is_well and longest * 1000 < (limit_ms or DEFAULT_MS):
            raise RuntimeError(f"{disturb.__name__} for {longest:.2f} s at most, number {done}: {text}")
        tries += not is_well
        done = 0 if not is_well else done
        if tries == TRIES:
            return f"skipped: this machine is too busy: {longest:.1f} s instead of {seconds} s"
    return f"{disturb.__name__}, {done} times {seconds} s, limit {limit_ms or DEFAULT_MS} ms: borne"


def main():
    base = f"k{os.getpid()}"
    probe = subprocess.run([HOSTS, "--name", base, "check"], capture_output=True, text=True, timeout=60)
    if probe.returncode == 77:
        print(probe.stderr.strip())
        return 77
    # a link that is down for parts of the limit; shorter outages with the default limit; hosts that stand still
    cases = [("pull", LIMIT_MS * part / 1000, TIMES, LIMIT_MS) for part in (0.3, 0.7, 0.9)]
    cases += [("pull", 1.2, 5, None), ("freeze", LIMIT_MS * 0.9 / 1000, 4, LIMIT_MS), ("freeze", 5, 2, None)]
    networks = [Network(f"{base}{i}") for i in range(len(cases))]
    said, failed = {}, {}

    def run(network, case):
        try:
            network.hosts("up", "2", "100mbit")
            said[case] = is_borne(network, getattr(network, case[0]), *case[1:])
        except Exception as error:  # pylint: disable=broad-except
            failed[case] = error

    threads = [threading.Thread(target=run, args=pair) for pair in zip(networks, cases)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for network in networks:
            for node in network.nodes:
                node.kill()
            subprocess.run([HOSTS, "--name", network.name, "down"], timeout=60)
    for case in cases:
        print(said.get(case, f"FAILED: {failed.get(case)}"))
    if failed:
        return 1
    return 77 if any(text.startswith("skipped") for text in said.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
