# SPDX-License-Identifier: Apache-2.0

"""deploy/k8s, rendered: valid for Kubernetes, complete, and with the counts in all places."""

import json
import os
import re
import subprocess
import unittest

import jsonschema
import kubernetes_validate
import manifests
import yaml

# The oldest version whose Jobs have a podFailurePolicy without a feature gate, one in between, and
# the newest that kubernetes_validate has.
_VERSIONS = ("1.26", "1.31", kubernetes_validate.latest_version())
_PS, _WORKERS = 3, 5
# The overlay that has a ps beside each worker.
_COLLOCATED = "overlays/collocated"


def _templates(objects):
    """(name, pod template) of each Job or kind of replica."""
    for document in objects:
        if document["kind"] == "Job":
            yield document["metadata"]["name"], document["spec"]["template"]
        elif document["kind"] == "TFJob":
            for kind, replica in document["spec"]["tfReplicaSpecs"].items():
                yield kind, replica["template"]


def _hosts(pod, job):
    """The addresses of a job's tasks as given to the pod: "ps-{2}.net:2222"."""
    if "TF_CONFIG" in pod.env:
        [value] = json.loads(pod.env["TF_CONFIG"])["cluster"][job]
    else:
        [value] = [a.split("=", 1)[1] for a in pod.argv() if a.startswith(f"--{job}_hosts=")]
    return value


@unittest.skipIf(manifests.why_no_kubectl(), str(manifests.why_no_kubectl()))
class ManifestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rendered = {v: manifests.render(v, _PS, _WORKERS) for v in manifests.VARIANTS}

    def each(self):
        return self.rendered.values()

    def test_are_valid(self):
        for objects in self.each():
            for document in objects:
                for version in _VERSIONS:
                    if document["kind"] != "TFJob":
                        kubernetes_validate.validate(document, version, strict=True)
            for name, template in _templates(objects):
                pod_template = {
                    "apiVersion": "v1",
                    "kind": "PodTemplate",
                    "metadata": {"name": name.lower()},
                    "template": template,
                }
                kubernetes_validate.validate(pod_template, _VERSIONS[0], strict=True)

    def test_tf_job_is_valid(self):
        path = os.path.join(os.path.dirname(__file__), "tfjob.schema.json")
        with open(path, encoding="utf-8") as file:
            schema = json.load(file)
        job = manifests.find(self.rendered["tfjob"], "TFJob", "holdfast")
        jsonschema.validate(job, schema)
        for break_it in (
            lambda spec: spec.update(restart="x"),
            lambda spec: spec["tfReplicaSpecs"].pop("PS"),
            lambda spec: spec["tfReplicaSpecs"]["PS"].update(replicas="3"),
            lambda spec: spec["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"][0].update(
                name="ps"
            ),
        ):
            broken = json.loads(json.dumps(job))
            break_it(broken["spec"])
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.validate(broken, schema)

    def test_counts_are_everywhere(self):
        for variant, objects in self.rendered.items():
            num_ps = _WORKERS if variant == _COLLOCATED else _PS
            pods = manifests.pods(objects)
            ps = [pod for pod in pods if pod.argv()[0] == "ps_server"]
            workers = [pod for pod in pods if pod.argv()[0] in ("ps_worker", "python")]
            self.assertEqual((len(ps), len(workers)), (num_ps, _WORKERS))
            for pod in pods:
                if "TFJob" in {o["kind"] for o in objects}:
                    continue
                for job, tasks in (("ps", ps), ("worker", workers)):
                    value = _hosts(pod, job)
                    count = int(re.search(r"{(\d+)}", value).group(1))
                    names = [re.sub(r"{\d+}", str(i), value) for i in range(count)]
                    port = 2223 if variant == _COLLOCATED and job == "worker" else 2222
                    self.assertEqual(names, [f"{task.hosts[0]}:{port}" for task in tasks])
            budgets = {
                o["metadata"]["name"]: o["spec"]["minAvailable"]
                for o in objects
                if o["kind"] == "PodDisruptionBudget"
            }
            if budgets:
                if variant != _COLLOCATED:
                    self.assertEqual(budgets.pop("holdfast-ps"), _PS)
                self.assertIn(budgets, ({}, {"holdfast-worker": _WORKERS}))

    def test_images_are_the_jobs(self):
        for objects in self.each():
            for _, template in _templates(objects):
                for container in template["spec"]["containers"]:
                    self.assertTrue(container["image"].startswith("registry.example.com/holdfast"))

    def test_args_are_expanded(self):
        for objects in self.each():
            for pod in manifests.pods(objects):
                self.assertNotIn("$(", " ".join(pod.argv()))

    def test_pods_may_do_little(self):
        for objects in self.each():
            for _, template in _templates(objects):
                spec = template["spec"]
                self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
                self.assertIs(spec["automountServiceAccountToken"], False)
                for container in spec["containers"]:
                    rights = container["securityContext"]
                    self.assertIs(rights["readOnlyRootFilesystem"], True)
                    self.assertIs(rights["allowPrivilegeEscalation"], False)
                    self.assertEqual(rights["capabilities"], {"drop": ["ALL"]})
                    self.assertIn("memory", container["resources"]["limits"])

    def test_what_is_named_is_there(self):
        for objects in self.each():
            names = {(o["kind"], o["metadata"]["name"]) for o in objects}
            for _, template in _templates(objects):
                spec = template["spec"]
                volumes = {volume["name"]: volume for volume in spec["volumes"]}
                for volume in volumes.values():
                    if "configMap" in volume:
                        self.assertIn(("ConfigMap", volume["configMap"]["name"]), names)
                    if "persistentVolumeClaim" in volume:
                        claim = volume["persistentVolumeClaim"]["claimName"]
                        self.assertIn(("PersistentVolumeClaim", claim), names)
                if "subdomain" in spec:
                    self.assertIn(("Service", spec["subdomain"]), names)
                mounts = [m for c in spec["containers"] for m in c["volumeMounts"]]
                self.assertEqual({mount["name"] for mount in mounts}, set(volumes))
                all_ports = [p["name"] for c in spec["containers"] for p in c["ports"]]
                self.assertEqual(len(all_ports), len(set(all_ports)))
                for container in spec["containers"]:
                    ports = {port["name"] for port in container["ports"]}
                    for probe in ("livenessProbe", "readinessProbe"):
                        if probe in container:
                            self.assertIn(container[probe]["httpGet"]["port"], ports)

    def test_selectors_meet_the_pods(self):
        for objects in self.each():
            labels = [template["metadata"]["labels"] for _, template in _templates(objects)]
            for document in objects:
                spec = document.get("spec", {})
                if document["kind"] == "Service":
                    selector, expected = spec["selector"], 1
                    self.assertEqual(spec["clusterIP"], "None")
                    self.assertIs(spec["publishNotReadyAddresses"], True)
                elif document["kind"] == "PodDisruptionBudget":
                    selector, expected = spec["selector"]["matchLabels"], 1
                elif document["kind"] == "NetworkPolicy":
                    selector, expected = spec["podSelector"]["matchLabels"], len(labels)
                    [source] = spec["ingress"][0]["from"]
                    self.assertEqual(source["podSelector"]["matchLabels"], selector)
                else:
                    continue
                met = [each for each in labels if selector.items() <= each.items()]
                self.assertEqual(len(met), expected, document["metadata"]["name"])

    def test_grace_fits_the_last_checkpoint(self):
        for objects in self.each():
            for pod in manifests.pods(objects):
                grace = pod.spec["terminationGracePeriodSeconds"]
                for arg in pod.argv():
                    if arg.startswith("--grace="):
                        # After that, it leaves the cluster, for 3 s at most, and sends answers.
                        self.assertGreaterEqual(grace, int(arg[len("--grace=") : -1]) + 10)

    def test_data_pod_is_valid_and_finds_its_volume(self):
        with open(os.path.join(manifests.K8S, "data_pod.yaml"), encoding="utf-8") as file:
            pod = yaml.safe_load(file)
        for version in _VERSIONS:
            kubernetes_validate.validate(pod, version, strict=True)
        [volume] = pod["spec"]["volumes"]
        claim = volume["persistentVolumeClaim"]["claimName"]
        manifests.find(self.rendered["overlays/cpu"], "PersistentVolumeClaim", claim)

    def test_what_check_refuses_is_not_rendered_right(self):
        # The reason for deploy/k8s/check.sh: kustomize accepts any count.
        for pod in manifests.pods(manifests.render("overlays/cpu", 0, 2)):
            self.assertIn("--ps_hosts=holdfast-ps-{0}.holdfast-ps:2222", pod.argv())
        tree = os.path.join(manifests.K8S, "check.sh")
        for folder, code in (("example", 0), ("base", 2)):
            done = subprocess.run(
                [tree, os.path.join(manifests.K8S, folder)], capture_output=True, check=False
            )
            self.assertEqual(done.returncode, code, done.stderr)

    def test_a_collocated_ps_and_its_worker_share_a_folder(self):
        pods = manifests.pods(self.rendered[_COLLOCATED])
        by_name = {}
        for pod in pods:
            by_name.setdefault(pod.name, []).append(pod)
        self.assertEqual(len(by_name), _WORKERS)
        for pair in by_name.values():
            self.assertEqual({pod.argv()[0] for pod in pair}, {"ps_server", "ps_worker"})
            places, sockets, ports = set(), set(), []
            for pod in pair:
                [place] = [a for a in pod.argv() if a.startswith("--task_index=")]
                places.add(place)
                [flag] = [a for a in pod.argv() if a.startswith("--same_host_dir=")]
                [mount] = [
                    m
                    for m in pod.container["volumeMounts"]
                    if m["mountPath"] == flag.split("=", 1)[1]
                ]
                sockets.add(mount["name"])
                ports += [a.split("=")[1] for a in pod.argv() if "_port=" in a]
            self.assertEqual(len(places), 1)
            # The two containers share a network.
            self.assertEqual(len(set(ports)), 4)
            [volume] = [v for v in pair[0].spec["volumes"] if v["name"] in sockets]
            self.assertIn("emptyDir", volume)
            # A killed container is restarted, and the other one keeps running.
            self.assertEqual(pair[0].spec["restartPolicy"], "OnFailure")

    def test_gpu_workers_have_one(self):
        for pod in manifests.pods(self.rendered["overlays/gpu"]):
            is_worker = pod.argv()[0] == "ps_worker"
            self.assertEqual("--device=cuda:0" in pod.argv(), is_worker)
            limits = pod.container["resources"]["limits"]
            self.assertEqual(limits.get("nvidia.com/gpu"), "1" if is_worker else None)

    def test_scripts_are_told_their_place(self):
        objects = manifests.render("overlays/script", 2, 3, tls=["--cert-manager"])
        job = manifests.find(objects, "ConfigMap", "holdfast-job")
        workers = [pod for pod in manifests.pods(objects) if "TF_CONFIG" in pod.env]
        self.assertEqual(len(workers), 3)
        for index, pod in enumerate(workers):
            task = json.loads(pod.env["TF_CONFIG"])["task"]
            self.assertEqual(task, {"type": "worker", "index": index})
            self.assertEqual(pod.env["HOLDFAST_TLS_DIR"], f"/etc/holdfast/tls/worker-{index}")
            self.assertEqual(pod.env["HOLDFAST_INSECURE"], "1")
            self.assertEqual(pod.argv()[0], "python")
            self.assertIn(os.path.basename(pod.argv()[1]), job["data"])
            self.assertNotIn("livenessProbe", pod.container)

    def test_evaluators_read_what_the_ps_write(self):
        for variant, component in (
            ("tfjob", "tfjob/evaluator"),
            ("overlays/cpu", "overlays/evaluator"),
            ("overlays/spot", "overlays/evaluator"),
        ):
            objects = manifests.render(variant, _PS, _WORKERS, component=component)
            for document in objects:
                for version in _VERSIONS:
                    if document["kind"] != "TFJob":
                        kubernetes_validate.validate(document, version, strict=True)
            pods = manifests.pods(objects)
            self.assertEqual(len(pods), _PS + _WORKERS + 1)
            [ps, *_] = [pod for pod in pods if pod.argv()[0] == "ps_server"]
            [directory] = [a for a in ps.argv() if a.startswith("--checkpoint_dir=")]
            [evaluator] = [
                pod for pod in pods if pod.argv()[0] == "ps_worker" and directory in pod.argv()
            ]
            mounts = {m["name"]: m["mountPath"] for m in evaluator.container["volumeMounts"]}
            [shared] = [v for v in ps.spec["volumes"] if v["name"] == "shared"]
            self.assertIn(shared, evaluator.spec["volumes"])
            self.assertTrue(directory.startswith(f"--checkpoint_dir={mounts['shared']}/"))
            if variant == "tfjob":
                config = json.loads(evaluator.env["TF_CONFIG"])
                self.assertEqual(config["task"], {"type": "evaluator", "index": 0})
                self.assertEqual(set(config["cluster"]), {"ps", "worker"})
                path = os.path.join(os.path.dirname(__file__), "tfjob.schema.json")
                with open(path, encoding="utf-8") as file:
                    schema = json.load(file)
                jsonschema.validate(manifests.find(objects, "TFJob", "holdfast"), schema)
            else:
                self.assertIn("--job_name=evaluator", evaluator.argv())
                self.assertEqual(_hosts(evaluator, "ps"), _hosts(ps, "ps"))
            # The pod has the image of the job and may connect to the ps.
            labels = {
                frozenset(template["metadata"]["labels"].items())
                for _, template in _templates(objects)
            }
            self.assertTrue(all(("app.kubernetes.io/name", "holdfast") in each for each in labels))
            self.assertTrue(evaluator.container["image"].startswith("registry.example.com/"))

    def test_spot_workers_may_go(self):
        names = {
            o["metadata"]["name"]
            for o in self.rendered["overlays/spot"]
            if o["kind"] == "PodDisruptionBudget"
        }
        self.assertEqual(names, {"holdfast-ps"})

    def test_monitoring_finds_the_status_port_of_each_task(self):
        objects = manifests.render("overlays/gpu", 2, 3, component="overlays/monitoring")
        pods = manifests.pods(objects)
        self.assertEqual(len(pods), 5)
        monitor = manifests.find(objects, "ServiceMonitor", "holdfast")["spec"]
        [endpoint] = monitor["endpoints"]
        labels = monitor["selector"]["matchLabels"].items()
        numbers = set()
        for role in ("ps", "worker"):
            service = manifests.find(objects, "Service", f"holdfast-{role}")
            self.assertLessEqual(labels, service["metadata"]["labels"].items())
            [port] = [p for p in service["spec"]["ports"] if p["name"] == endpoint["port"]]
            numbers.add(port["port"])
        [number] = numbers
        for pod in pods:
            self.assertIn(f"--status_port={number}", pod.argv())
            self.assertIn(number, [p["containerPort"] for p in pod.container["ports"]])
        policy = manifests.find(objects, "NetworkPolicy", "holdfast-monitoring")
        [rule] = policy["spec"]["ingress"]
        self.assertEqual([p["port"] for p in rule["ports"]], [number])
        for document in objects:
            if document["kind"] != "ServiceMonitor":
                kubernetes_validate.validate(document, _VERSIONS[0], strict=True)

    def test_certificates_by_cert_manager(self):
        self.check_certificates("overlays/gpu", num_ps=2)

    def test_certificates_of_a_ps_beside_each_worker(self):
        self.check_certificates(_COLLOCATED, num_ps=3)

    def test_certificates_of_an_evaluator(self):
        self.check_certificates("overlays/cpu", num_ps=2, evaluator="overlays/evaluator")

    def check_certificates(self, variant, num_ps, evaluator=None):
        objects = manifests.render(variant, 2, 3, tls=["--cert-manager"], component=evaluator)
        issued = {}  # Secret to URI
        for document in objects:
            if document["kind"] == "Certificate" and "uris" in document["spec"]:
                [issued[document["spec"]["secretName"]]] = document["spec"]["uris"]
        shown = []
        for pod in manifests.pods(objects):
            role = {"ps_server": "ps", "ps_worker": "worker"}[pod.argv()[0]]
            if "--job_name=evaluator" in pod.argv():
                role = "evaluator"
            index = pod.name.split("-")[-1]
            shown.append(f"{role}-{index}")
            self.assertIn(f"--tls_dir=/etc/holdfast/tls/{role}-{index}", pod.argv())
            mounts = {m["name"]: m["mountPath"] for m in pod.container["volumeMounts"]}
            [volume] = [v for v in pod.spec["volumes"] if "projected" in v and v["name"] in mounts]
            self.assertEqual(mounts[volume["name"]], "/etc/holdfast/tls")
            files = {}  # path to Secret and key
            for source in volume["projected"]["sources"]:
                for item in source["secret"]["items"]:
                    files[item["path"]] = (source["secret"]["name"], item["key"])
            for key in ("ca.crt", "tls.crt", "tls.key"):
                secret, from_key = files[f"{role}-{index}/{key}"]
                self.assertEqual(from_key, key)
                self.assertEqual(
                    issued[secret], f"holdfast://holdfast-example/{role}/{index}"
                )
            # Only certificates of the pod's own role.
            self.assertEqual({path.split("-")[0] for path in files}, {role})
        expected = [f"ps-{i}" for i in range(num_ps)] + [f"worker-{i}" for i in range(3)]
        if evaluator is not None:
            expected.append("evaluator-0")
        self.assertEqual(sorted(shown), sorted(expected))
        for document in objects:
            if "cert-manager" not in document["apiVersion"]:
                kubernetes_validate.validate(document, _VERSIONS[0], strict=True)


if __name__ == "__main__":
    unittest.main()
