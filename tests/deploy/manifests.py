# SPDX-License-Identifier: Apache-2.0

"""Renders deploy/k8s, and determines which pods Kubernetes would start for it."""

import dataclasses
import os
import re
import shutil
import subprocess
import tempfile

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
K8S = os.path.join(ROOT, "deploy", "k8s")

# What the folder of a job may list as its resources.
VARIANTS = (
    "overlays/collocated",
    "overlays/cpu",
    "overlays/gpu",
    "overlays/script",
    "overlays/spot",
    "tfjob",
)

_INDEX_FIELD = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def why_no_kubectl():
    """Why nothing can be rendered here; None if rendering works. Debian 12's kubectl, 1.20, has a
    kustomize of 2019, which has neither components nor replacements."""
    try:
        client = subprocess.run(
            ["kubectl", "version", "--client"], capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:
        return "kubectl is not installed"
    found = re.search(r"Kustomize Version: v(\d+)", client)
    if found is None or int(found.group(1)) < 5:
        return f"kubectl is too old, its kustomize must be of version 5 at least: {client.strip()}"
    return None


def render(variant, ps, workers, job=None, tls=None, programs="", component=None):
    """The objects of deploy/k8s/example, as dicts, with only the changes that a user would make:
    variant, counts and, if given, `job`, the text of the job file. `tls`: further arguments of
    deploy/k8s/tls.sh, if TLS is wanted; `programs` is then a folder that has holdfast.
    `component`: a component of deploy/k8s to add to the job."""
    with tempfile.TemporaryDirectory() as folder:
        tree = shutil.copytree(K8S, os.path.join(folder, "k8s"))
        path = os.path.join(tree, "example", "kustomization.yaml")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        text, changed = re.subn(
            r"^resources: \[[^]]*\]", f"resources: [../{variant}]", text, flags=re.M
        )
        text, counted = re.subn(
            r"literals: \[ps=\d+, workers=\d+\]", f"literals: [ps={ps}, workers={workers}]", text
        )
        assert changed == 1 and counted == 1, path
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if job is not None:
            job_file = os.path.join(tree, "example", "job.textproto")
            with open(job_file, "w", encoding="utf-8") as file:
                file.write(job)
        components = [] if component is None else [f"../{component}"]
        if tls is not None:
            components.append("tls")
        if components:
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"components: [{', '.join(components)}]\n")
        if tls is not None:
            subprocess.run(
                [os.path.join(tree, "tls.sh"), os.path.join(tree, "example"), *tls],
                env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
                check=True,
                capture_output=True,
            )
        done = subprocess.run(
            ["kubectl", "kustomize", os.path.join(tree, "example")],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise AssertionError(f"kubectl kustomize, {variant}: {done.stderr}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def find(objects, kind, name):
    """The object of this kind and name."""
    [found] = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def expand(text, env):
    """Expands each $(NAME) in `env`, as in a container's args; others are unchanged."""
    return re.sub(r"\$\((\w+)\)", lambda m: env.get(m.group(1), m.group(0)), text)


@dataclasses.dataclass
class Pod:
    """A pod that a controller starts, and what follows when it ends."""

    name: str  # "holdfast-ps-0"
    hosts: list  # its names in the DNS
    spec: dict
    container: dict  # the only one; a pod with two containers is represented by two Pods
    env: dict
    # Maps an exit code, or 128 + a signal, to whether the controller starts another pod, or to
    # None if the whole job fails.
    another_after: callable

    def argv(self):
        """The container's command line."""
        words = self.container["command"] + self.container["args"]
        return [expand(word, self.env) for word in words]


def _env(container, fields):
    env = {}
    for variable in container.get("env", []):
        if "valueFrom" in variable:
            value = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            value = expand(variable["value"], env)
        env[variable["name"]] = value
    return env


def _indexed_job_pods(job):
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    final = set()
    for rule in spec.get("podFailurePolicy", {"rules": []})["rules"]:
        if rule["action"] == "FailJob":
            assert rule["onExitCodes"]["operator"] == "In"
            final.update(rule["onExitCodes"]["values"])
    template = spec["template"]["spec"]
    for index in range(spec["completions"]):
        name = f"{job['metadata']['name']}-{index}"
        for container in template["containers"]:
            yield Pod(
                name=name,
                hosts=[f"{name}.{template['subdomain']}"] if "subdomain" in template else [],
                spec=template,
                container=container,
                env=_env(container, {_INDEX_FIELD: str(index)}),
                another_after=lambda code: None if code in final else True,
            )


def _tf_job_pods(job):
    """Like Kubeflow's training operator: a service for each pod, and TF_CONFIG."""
    import json

    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    replicas = {kind.lower(): spec for kind, spec in job["spec"]["tfReplicaSpecs"].items()}

    def host(kind, index):
        return f"{name}-{kind}-{index}.{namespace}.svc"

    # TF_CONFIG's cluster does not list evaluators.
    cluster = {
        kind: [f"{host(kind, i)}:2222" for i in range(spec["replicas"])]
        for kind, spec in replicas.items()
        if kind != "evaluator"
    }
    for kind, spec in replicas.items():
        assert spec["restartPolicy"] == "ExitCode"
        template = spec["template"]["spec"]
        [container] = template["containers"]
        for index in range(spec["replicas"]):
            task = {"type": kind, "index": index}
            config = {"cluster": cluster, "task": task, "environment": "cloud"}
            yield Pod(
                name=f"{name}-{kind}-{index}",
                hosts=[host(kind, index)],
                spec=template,
                container=container,
                env={**_env(container, {}), "TF_CONFIG": json.dumps(config)},
                # https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/
                another_after=lambda code: True if code >= 128 else None,
            )


def pods(objects):
    """All pods of the job, as their controllers create them."""
    made = []
    for document in objects:
        if document["kind"] == "Job":
            made += _indexed_job_pods(document)
        elif document["kind"] == "TFJob":
            made += _tf_job_pods(document)
    return made
