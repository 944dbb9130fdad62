#!/usr/bin/env python3
"""test_footprint.py - a rank's memory grows little with the number of hosts, and its number of threads not at all. The hosts are this
machine under several names. Usage: test_footprint.py BUILD"""
import json, os, subprocess, sys

BUILD = sys.argv[1]
MOST_A_HOST = 40 << 10  # the leaders' connections, in both directions, with what is received and not taken yet
MOST_UNDER_WAY = (4 << 20) + (64 << 10)  # of an all-reduce of 1 MiB: four pieces at most, and what is known of them


def rank_holds(hosts):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CDDP_") or "TEST" in name}
    done = subprocess.run([os.path.join(BUILD, "launcher/cddp-run"), "--nproc", str(hosts), "--", "sh", "-c",
                           f"CDDP_HOST_ID=host-$RANK exec {BUILD}/tests/bench_footprint"], capture_output=True, text=True,
                          timeout=120, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"test_footprint: {hosts} hosts: status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


rows = {hosts: rank_holds(hosts) for hosts in (2, 3, 4, 8)}
for hosts, row in rows.items():
    print(hosts, "hosts:", row)
    if row["ranks"] != hosts:
        raise SystemExit(f"test_footprint: {row['ranks']} ranks, not {hosts}")
    if row["threads"] != rows[2]["threads"]:
        raise SystemExit(f"test_footprint: {hosts} hosts: {row['threads']} threads, {rows[2]['threads']} with 2 hosts")
if rows[2]["joined_bytes"] == 0:
    print("skipped: the allocator does not tell what is in use")
    sys.exit(77)
for hosts, row in rows.items():
    grown = row["joined_bytes"] - rows[2]["joined_bytes"]
    if grown > (hosts - 2) * MOST_A_HOST:
        raise SystemExit(f"test_footprint: {hosts} hosts: {grown} bytes more than with 2, at most {MOST_A_HOST} a host may be")
    if row["reduced_bytes"] - row["joined_bytes"] > MOST_UNDER_WAY:
        raise SystemExit(f"test_footprint: {hosts} hosts: reducing 1 MiB takes {row['reduced_bytes'] - row['joined_bytes']} bytes")
