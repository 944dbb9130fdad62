#!/usr/bin/env python3
"""test_cluster_files.py - examples/cluster passes to Kubernetes, Docker, Slurm and cddp-run only what cddp knows: every
variable, option, key, command and file exists, and the parts of a manifest match (if Python has yaml).

    test_cluster_files.py SOURCE BUILD
"""
import glob, os, re, subprocess, sys

try:
    import yaml
except ImportError:
    yaml = None

SOURCE, BUILD = sys.argv[1:3]
FOLDER = os.path.join(SOURCE, "examples", "cluster")
PROGRAMS = {"cddp-run": "launcher/cddp-run", "cddp-train": "src/cddp-train"}


def text_of(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def said(program, *words):
    done = subprocess.run([os.path.join(BUILD, PROGRAMS[program]), *words], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise SystemExit(f"test_cluster_files: {program} {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def need(what, known, where):
    if not known:
        raise SystemExit(f"test_cluster_files: {where}: {what}")


OURS = set(re.findall(r"\bCDDP_[A-Z_]+\b", said("cddp-run", "--env")))
LAUNCHERS = set(re.findall(r'"([A-Z][A-Z0-9_]+)"', "".join(text_of(path) for path in
                                                          glob.glob(os.path.join(SOURCE, "src/runtime/group/launch/launch_*.c")))))
KEYS = set(re.findall(r"^([a-z_0-9.]+)$", said("cddp-train", "--keys"), re.M))
OPTIONS = {program: set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", said(program, "--help"), re.M)) for program in PROGRAMS}


def look_at_variable(name, where):
    need(f"{name} is no variable that cddp reads", name in (OURS if name.startswith("CDDP_") else LAUNCHERS), where)


def look_at_command(words, where):
    need(f"{words[0]} is no program of cddp", words[0] in PROGRAMS, where)
    for word in words[1:]:
        option, key = re.match(r"--[a-z-]+", word), re.match(r"([a-z_0-9]+\.[a-z_0-9.]+)=", word)
        if option:
            need(f"{words[0]} has no {option[0]}", option[0] in OPTIONS[words[0]], where)
        elif key:
            need(f"{key[1]} is no key of train.conf", key[1] in KEYS, where)
        else:
            need(f"{word} is neither option, key nor configuration", word.endswith(".conf"), where)


def look_at_text(name):
    """What needs no yaml."""
    text = text_of(FOLDER, name)
    variables = re.findall(r"- name: ([A-Z][A-Z0-9_]+)", text)
    commands = re.findall(r"command: (\[[^]]*\])", text)
    need("there are no variables or no command", variables and commands, name)
    for variable in variables:
        look_at_variable(variable, name)
    for variable in re.findall(r"\b(?:JOB_COMPLETION_INDEX|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)\b", text):
        look_at_variable(variable, name)
    for command in commands:
        look_at_command(re.findall(r'"([^"]*)"', command), name)
    need("a token must not lie in the open", "CDDP_TOKEN" in variables and not re.search(r"CDDP_TOKEN\s+value:", text), name)


def look_at_secrets():
    """What is shipped is known to all: no file has a token, not even one that stands for another."""
    for path in glob.glob(os.path.join(SOURCE, "examples", "**", "*"), recursive=True):
        if not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        name = os.path.relpath(path, SOURCE)
        need("a Secret is shipped", not re.search(r"^\s*kind:\s*Secret\b|^\s*stringData:", text, re.M), name)
        need("a text stands for a token, and works as one", "REPLACE-ME" not in text, name)
        for value in re.findall(r"(?:CDDP_TOKEN|from-literal=token)=(\S+)", text):
            need(f"a token is shipped: {value}", value.startswith(("$(", "...")), name)
    for manifest in glob.glob(os.path.join(FOLDER, "*.yaml")):
        text = text_of(manifest)
        need("nothing says how its Secret is made", "secretKeyRef" not in text or re.search(
            r"kubectl create secret generic cddp-token --from-literal=token=\$\(openssl rand -hex 16\)", text), manifest)


def look_at_pod(pod, document, name):
    container, = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    need(f"mounts {sorted(mounts)}, volumes {sorted(volumes)}", set(mounts) == volumes, name)
    for path in re.findall(r"(?<![\w.])/[\w/]+", " ".join(container["command"])):
        need(f"nothing is mounted where {path} is", any(path.startswith(place + "/") for place in mounts.values()), name)
    user = re.search(r"^USER (\d+):(\d+)$", text_of(FOLDER, "Dockerfile"), re.M)
    context = pod["securityContext"]
    need("the pod's user is not the image's", context["runAsNonRoot"] and
         (str(context["runAsUser"]), str(context["runAsGroup"])) == user.groups(), name)
    made = re.findall(r"kubectl create (?:secret generic|configmap) (\S+)", text_of(FOLDER, name))
    made += [other["metadata"]["name"] for other in document if other["kind"] == "Secret"]
    wanted = {entry["valueFrom"]["secretKeyRef"]["name"] for entry in container["env"] if "secretKeyRef" in entry.get("valueFrom", {})}
    wanted |= {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    need(f"{sorted(wanted)} are used, {sorted(made)} are made", wanted <= set(made), name)
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def look_at_indexed_job():
    name = "indexed-job.yaml"
    document = list(yaml.safe_load_all(text_of(FOLDER, name)))
    job, = (part for part in document if part["kind"] == "Job")
    service, = (part for part in document if part["kind"] == "Service")
    pod, spec, job_name = job["spec"]["template"]["spec"], job["spec"], job["metadata"]["name"]
    variables = look_at_pod(pod, document, name)
    need("a rank is a pod", spec["completionMode"] == "Indexed" and
         str(spec["completions"]) == str(spec["parallelism"]) == variables["WORLD_SIZE"], name)
    need("rank 0's pod has another name", pod["subdomain"] == service["metadata"]["name"] and
         variables["MASTER_ADDR"] == f"{job_name}-0.{pod['subdomain']}", name)
    need("the service chooses other pods", service["spec"]["selector"] == {"job-name": job_name} and
         service["spec"]["clusterIP"] == "None", name)


def look_at_pytorchjob():
    name = "pytorchjob.yaml"
    document = list(yaml.safe_load_all(text_of(FOLDER, name)))
    replicas = document[0]["spec"]["pytorchReplicaSpecs"]
    need("there is one master, and there are workers", set(replicas) == {"Master", "Worker"} and
         replicas["Master"]["replicas"] == 1 <= replicas["Worker"]["replicas"], name)
    for part in replicas.values():
        pod = part["template"]["spec"]
        variables = look_at_pod(pod, document, name)
        need("the operator sets ranks and addresses", set(variables) == {"CDDP_TOKEN"}, name)
        need("the operator looks for the container pytorch", pod["containers"][0]["name"] == "pytorch", name)


def look_at_jobset():
    name = "jobset.yaml"
    document = list(yaml.safe_load_all(text_of(FOLDER, name)))
    job, = document[0]["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    pod = spec["template"]["spec"]
    variables = look_at_pod(pod, document, name)
    need("a rank is a pod of one Job", job["replicas"] == 1 and spec["completionMode"] == "Indexed" and
         str(spec["completions"]) == str(spec["parallelism"]) == variables["WORLD_SIZE"], name)
    labels = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in pod["containers"][0]["env"]
              if "fieldRef" in entry.get("valueFrom", {})}
    need("pod 0 is found by the JobSet's labels", labels == {
        "JOBSET_NAME": "metadata.labels['jobset.sigs.k8s.io/jobset-name']",
        "REPLICATED_JOB_NAME": "metadata.labels['jobset.sigs.k8s.io/replicatedjob-name']"}, name)
    need("a pod that ends alone would leave the others waiting", spec["backoffLimit"] == 0 and pod["restartPolicy"] == "Never", name)


def look_at_trainjob():
    name = "trainjob.yaml"
    document = list(yaml.safe_load_all(text_of(FOLDER, name)))
    runtime, = (part for part in document if part["kind"] == "TrainingRuntime")
    job, = (part for part in document if part["kind"] == "TrainJob")
    need("the job names another runtime", job["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": runtime["metadata"]["name"]}, name)
    node, = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    need("nothing sets PET_NNODES and PET_NODE_RANK", "torch" in runtime["spec"]["mlPolicy"] and node["template"]["metadata"]["labels"] == {
        "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}, name)
    pod = node["template"]["spec"]["template"]["spec"]
    need("the trainer looks for the container node", node["name"] == pod["containers"][0]["name"] == "node", name)
    need("the policy sets ranks and addresses", set(look_at_pod(pod, document, name)) == {"CDDP_TOKEN"}, name)


def look_at_dockerfile():
    name, text = "Dockerfile", text_of(FOLDER, "Dockerfile").replace("\\\n", " ")
    need("it copies what is ignored", os.path.exists(os.path.join(FOLDER, "Dockerfile.dockerignore")), name)
    options = set(re.findall(r"option\('([a-z_]+)'", text_of(SOURCE, "meson_options.txt")))
    used = re.findall(r"-D([a-z_]+)=", text)
    need("it chooses nothing", used, name)
    for option in used:
        need(f"meson has no option {option}", option in options, name)
    command = re.findall(r'"([^"]*)"', re.search(r"^CMD (\[.*\])$", text, re.M)[1])
    look_at_command(command, name)
    built, run = (re.search(r"install -y --no-install-recommends(.*?)(?:&&|\n)", part)[1].split() for part in text.split("FROM ")[1:])
    known = re.search(r'build_packages="(.*?)"', text_of(SOURCE, "scripts/setup.sh"), re.S)[1].split()
    need(f"scripts/setup.sh does not know {sorted(set(built) - set(known))}", set(built) <= set(known), name)
    need("without dpkg-dev Meson puts libraries where no loader of Debian looks", "dpkg-dev" in built, name)
    for package in (package for package in built if package.startswith("lib") and package.endswith("-dev")):
        base = package[:-4]
        need(f"the image lacks what {package} is for", base == "libc6" or any(one.startswith(base) for one in run), name)


def look_at_sbatch(name, srun):
    text = text_of(FOLDER, name)
    subprocess.run(["bash", "-n", os.path.join(FOLDER, name)], check=True)
    command = re.search(srun, text.replace("\\\n", " "), re.M)
    look_at_command([command[1], command[2]], name)
    status = re.search(r"^enum \{ CDDPI_STOPPED_EARLY = (\d+) \}", text_of(SOURCE, "launcher/supervise/job_state.h"), re.M)[1]
    need(f"a run that has saved ends with {status}", f'"$status" -eq {status} ' in text, name)
    for variable in re.findall(r"\bCDDP_TOKEN\b", text):
        look_at_variable(variable, name)


def look_at_hosts():
    plan = said("cddp-run", "--hostfile", os.path.join(FOLDER, "hosts"), "--dry-run", "--", "true")
    rows = re.findall(r"^node \d+: (\w+), (\d+) ranks", plan, re.M)
    wanted = re.findall(r"^(\w+) slots=(\d+)", text_of(FOLDER, "hosts"), re.M)
    need(f"cddp-run takes {rows}, it says {wanted}", rows == wanted and len(rows) > 1, "hosts")


def look_at_readme():
    name, text = "README.md", text_of(FOLDER, "README.md")
    named = set(re.findall(r"\]\(([\w.-]+)\)", text))
    there = {entry for entry in os.listdir(FOLDER) if entry != name and not entry.endswith("ignore")}
    need(f"it names {sorted(named)}, there are {sorted(there)}", named == there, name)
    command = re.search(r"command: (\[.*?\])\n", text, re.S)[1]
    look_at_command(re.findall(r'"([^"]*)"', command), name)
    for variable in re.findall(r"\$\(([A-Z_]+)\)", command):
        look_at_variable(variable, name)


for manifest in ("pytorchjob.yaml", "indexed-job.yaml", "jobset.yaml", "trainjob.yaml"):
    look_at_text(manifest)
look_at_secrets()
look_at_dockerfile()
look_at_sbatch("train.sbatch", r'^srun "\$\{CDDP_TRAIN:-(\S+)\}" "\$@" (\S+)')
look_at_sbatch("train-pyxis.sbatch", r'^srun --container-image=.* (cddp-train) "\$@" (\S+)')
look_at_hosts()
look_at_readme()
if yaml is None:
    print("this Python has no yaml: how the parts of the manifests fit was not looked at")
else:
    look_at_indexed_job()
    look_at_pytorchjob()
    look_at_jobset()
    look_at_trainjob()
