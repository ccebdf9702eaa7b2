# SPDX-License-Identifier: Apache-2.0

"""A headless Chromium that opens the status page."""

import contextlib
import os

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

# The timeout of a wait for the page, far longer than needed.
PATIENCE_SECONDS = 60


class Browser:
    def __init__(self, arguments=(), environment=None):
        """`arguments`: additional arguments of Chromium; `environment`: replaces this
        process's."""
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                         "--hide-scrollbars", "--force-device-scale-factor=1", "--lang=en-US", *arguments):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.binary_location = "/usr/bin/chromium"
        service = webdriver.ChromeService(executable_path="/usr/bin/chromedriver", env=environment)
        self.driver = webdriver.Chrome(options=options, service=service)

    def close(self):
        self.driver.quit()

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def wait(self, condition, what):
        """Waits until `condition()` is true."""
        WebDriverWait(self.driver, PATIENCE_SECONDS, poll_frequency=0.05).until(
            lambda _: condition(), f"the page does not show {what}")

    def look(self, width=1280, height=900, dark=False):
        """Emulates a screen of this size."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"}]})

    def open(self, address, polls=1):
        """Opens the page, and waits until ps 0 has answered `polls` polls."""
        self.driver.get(address)
        self.wait_polls(polls)

    def polls(self):
        return int(self.script("return document.body.dataset.polls || 0"))

    def wait_polls(self, more):
        """Waits for `more` further polls."""
        wanted = self.polls() + more
        self.wait(lambda: self.polls() >= wanted, f"{wanted} polls")

    def text(self, selector):
        """The text of an element, with plain spaces in place of the page's no-break spaces."""
        return self.script("const found = document.querySelector(arguments[0]);"
                           "return found ? found.innerText.replaceAll('\\u00a0', ' ') : null", selector)

    def texts(self, selector):
        return self.script("return [...document.querySelectorAll(arguments[0])]"
                           ".map((e) => e.innerText.replaceAll('\\u00a0', ' '))", selector)

    def complaints(self):
        """The messages on the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def picture(self, path, whole=True):
        """Takes a screenshot, by default of the whole page, however long it is."""
        from base64 import b64decode
        size = self.script("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"clip": {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}}
        data = self.driver.execute_cdp_cmd("Page.captureScreenshot", {
            "format": "png", "captureBeyondViewport": whole, **(clip if whole else {})})
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b64decode(data["data"]))


@contextlib.contextmanager
def browser():
    made = Browser()
    try:
        yield made
    finally:
        made.close()
