# SPDX-License-Identifier: Apache-2.0

"""The status page of a job with certificates, over HTTPS, in a browser with an operator's
certificate."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from browser import Browser
from loopback import HOLDFAST, free_ports, job_text
from selenium.common.exceptions import WebDriverException

# A person, or the administrator's policy, chooses which certificate a browser presents.
POLICIES = "/etc/chromium/policies/managed"
# `holdfast local` issues the certificate of ps 0 to this name.
NAME = "ps-0.local"


@contextlib.contextmanager
def policy(**settings):
    os.makedirs(POLICIES, exist_ok=True)
    path = f"{POLICIES}/holdfast_page_test.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(settings, file)
    try:
        yield
    finally:
        os.remove(path)


def home_with(folder, tls_dir=None, authority=None):
    """A home directory whose browser has the certificate of `tls_dir`, and trusts `authority`."""
    database = f"{folder}/.pki/nssdb"
    os.makedirs(database)
    run = lambda *args: subprocess.run(args, check=True, capture_output=True)
    run("certutil", "-d", f"sql:{database}", "-N", "--empty-password")
    run("certutil", "-d", f"sql:{database}", "-A", "-n", "authority", "-t", "C,,", "-i", authority)
    if tls_dir is not None:
        run("openssl", "pkcs12", "-export", "-in", f"{tls_dir}/tls.crt", "-inkey", f"{tls_dir}/tls.key",
            "-out", f"{folder}/own.p12", "-passout", "pass:")
        run("pk12util", "-d", f"sql:{database}", "-i", f"{folder}/own.p12", "-W", "")
    return {**os.environ, "HOME": folder}


@unittest.skipIf(os.geteuid() != 0, "sets a policy of the browser, as root")
@unittest.skipIf(shutil.which("certutil") is None, "needs certutil, of Debian's package libnss3-tools")
class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = f"{cls.folder.name}/job.textproto"
        with open(path, "w", encoding="utf-8") as file:
            file.write(job_text("fashion_mnist_softmax", steps=": 10000000"))
        cls.port = free_ports(1)[0]
        cls.run_dir = f"{cls.folder.name}/run"
        cls.job = subprocess.Popen(
            [HOLDFAST, "local", f"--job={path}", f"--run_dir={cls.run_dir}", "--tls", f"--status_port={cls.port}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in cls.job.stdout:
            said.append(line)
            if "status page: " in line:
                break
        # The address, and the path of the certificate.
        cls.said = "".join(said)

    @classmethod
    def tearDownClass(cls):
        cls.job.terminate()
        cls.job.communicate()
        cls.folder.cleanup()

    def browser(self, tls_dir=None):
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        environment = home_with(home.name, tls_dir, f"{self.run_dir}/tls/ca.crt")
        opened = Browser([f"--host-resolver-rules=MAP {NAME} 127.0.0.1"], environment)
        self.addCleanup(opened.close)
        opened.look()
        return opened

    @property
    def address(self):
        return f"https://{NAME}:{self.port}/"

    def select_any(self):
        return policy(AutoSelectCertificateForUrls=[json.dumps({"pattern": self.address[:-1], "filter": {}})])

    def await_listening(self):
        while not re.search(r"serves its status by HTTPS, to operators, on port", self.log("ps-0")):
            self.assertIsNone(self.job.poll())

    def log(self, name):
        try:
            with open(f"{self.run_dir}/{name}.log", encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def test_an_operator_sees_the_page(self):
        self.assertIn(f"status page: https://127.0.0.1:{self.port}/ (with the certificate in {self.run_dir}/tls/operator-0)",
                      self.said)
        self.await_listening()
        with self.select_any():
            browser = self.browser(f"{self.run_dir}/tls/operator-0")
            browser.open(self.address, polls=2)
            browser.wait(lambda: browser.text("#attention-body") == "Nothing.", "that all is well")
            self.assertRegex(browser.text("#steps"), r"^step [\d,]+ of 10,000,000$")
            self.assertEqual(browser.script("return window.isSecureContext && location.protocol"), "https:")
            self.assertEqual(browser.complaints(), [])

    def test_a_worker_does_not(self):
        self.await_listening()
        with self.select_any():
            browser = self.browser(f"{self.run_dir}/tls/worker-0")
            browser.driver.get(self.address)
            self.assertIn("operator", browser.text("body"))
            self.assertIsNone(browser.text("#steps"))

    def test_nor_does_somebody_without_a_certificate(self):
        self.await_listening()
        browser = self.browser()
        # Either an error of the driver, or an error page of the browser.
        try:
            browser.driver.get(self.address)
            self.assertIsNone(browser.text("#steps"))
            said = browser.text("body")
        except WebDriverException as error:
            said = error.msg
        self.assertIn("ERR_", said)


if __name__ == "__main__":
    unittest.main()
