# SPDX-License-Identifier: Apache-2.0

"""The status page in a browser, with made-up jobs (fake_status.py)."""

import re
import unittest

import fake_status
from browser import Browser
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

fake = None
browser = None


def setUpModule():
    global fake, browser
    fake = fake_status.FakeStatus()
    browser = Browser()


def tearDownModule():
    browser.close()
    fake.stop()


def titles():
    return browser.texts("#attention-body strong")


# The things that need attention in each scene; nothing else may be named.
NAMED = {
    "starting": [],
    "training": [],
    "slow_worker": ["Worker 2 is slow"],
    "lost_task": ["Worker 1 is lost", "The job has stalled", "Worker 3 is silent"],
    "full_disk": ["A disk is full: checkpoints cannot be written"],
    "slow_disk": ["The disk of ps 2 is slow"],
    "slow_only_disk": ["The disk of ps 0 is slow"],
    "stopping": ["ps 0 is stopping"],
    "input_bound": ["Worker 1 waits for its input"],
    "asynchronous": [],
    "rolled_back": [],
    "done": [],
    "stopped": [],
    "failed": ["The job has failed", "The loss is not finite"],
    "tables": [],
    "large": ["Worker 30 is lost", "Worker 17 is slow", "Worker 64 is slow", "Worker 65 is slow",
              "Worker 141 is slow"],
}

# WCAG's relative luminance and contrast, for colors as getComputedStyle() returns them.
CONTRAST = """
function parse(text) {
  const parts = text.match(/[\\d.]+/g).map(Number);
  return {rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1};
}
function luminance(rgb) {
  const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(a, b) {
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}
function back(element) {
  for (let at = element; at; at = at.parentElement) {
    const color = parse(getComputedStyle(at).backgroundColor);
    if (color.alpha === 1) return color.rgb;
  }
  return [255, 255, 255];
}
"""


class SceneTest(unittest.TestCase):
    def setUp(self):
        fake.change.clear()
        fake.broken.clear()
        fake.frozen = False
        browser.look()
        browser.complaints()

    def open(self, scene, polls=1):
        browser.open(f"{fake.address}/{scene}/", polls)

    def test_attention_names_what_a_scene_has(self):
        for scene, wanted in NAMED.items():
            with self.subTest(scene):
                self.open(scene)
                self.assertEqual(titles(), wanted)

    def test_attention_says_why(self):
        self.open("slow_worker")
        text = browser.text("#attention-body")
        self.assertIn("500 ms per push", text)
        self.assertIn("of its time goes to computing", text)
        self.assertIn("97 % of steps ended with its push", text)
        self.open("full_disk")
        text = browser.text("#attention-body")
        self.assertIn("No space left on device", text)
        self.assertIn("/job:ps/task:1 (ps-1:102)", text)
        self.assertIn("step 5,000", text)
        self.open("slow_disk")
        # 48 MiB in 14.2 s; the other ps, whose median is reported, take 0.38 and 0.40 s.
        self.assertIn("14.2 s, at 3.38 MiB/s; the median of the other ps is 123 MiB/s",
                      browser.text("#attention-body"))
        self.open("slow_only_disk")
        self.assertIn("It wrote its share of the last checkpoint in 9.60 s, at 5 MiB/s. Every",
                      browser.text("#attention-body"))
        self.open("input_bound")
        self.assertIn("It spent 81 % of the last seconds waiting", browser.text("#attention-body"))
        self.open("lost_task")
        self.assertIn("worker-1:201", browser.text("#attention-body"))

    def test_numbers_are_those_of_status_json(self):
        fake.frozen = True
        self.open("training")
        status = fake.last_status["training"]
        step, total = int(status["global_step"]), int(status["total_steps"])
        self.assertEqual(browser.text("#steps"), f"step {step:,} of {total:,}")
        self.assertEqual(browser.text("#percent"), f"{int(1000 * step / total) / 10:.1f} %")
        self.assertIn(f"{status['steps_per_second']:.1f} steps/s", browser.text("#rate-now"))
        self.assertIn(f"{status['examples_per_second']:,.0f} examples/s", browser.text("#rate-now"))
        self.assertIn(f"{status['train_loss']:.4f}", browser.text("#train-loss"))
        self.assertIn(f"{100 * status['evaluation']['accuracy']:.2f} %", browser.text("#evaluation"))
        self.assertIn(f"step {int(status['durable_step']):,}", browser.text("#durable-step"))
        # 20000 - 6180 steps at 20 a second.
        self.assertEqual(browser.text("#time-left"), "11 min 31 s")
        verdicts = dict(zip(browser.texts("#pushes-body tbody th"),
                            browser.texts("#pushes-body tbody td.number")))
        self.assertEqual(verdicts["accepted"], f"{int(status['pushes']['accepted']):,}")
        cells = browser.texts("#tasks-body tbody tr:nth-child(2) td")
        self.assertEqual(cells[0], "alive")
        self.assertEqual(cells[3], status["tasks"][1]["process"])
        memory = browser.texts("#memory-body tbody tr:first-child td")
        # 24 + 48 + 24 + 40 MiB of 256.
        self.assertEqual(memory[1], "136 MiB of 256 MiB")

    def test_time_of_a_step_by_phase(self):
        fake.frozen = True  # From here on, the means are over all steps.
        self.open("training")
        worker = fake.last_status["training"]["tasks"][-1]
        steps = int(worker["worker"]["steps"])
        bar = browser.script("return document.querySelector('#workers-body tr[data-key=\"worker 3\"] .stack')"
                             ".getAttribute('aria-label').replaceAll('\\u00a0', ' ')")
        for phase, words in (("compute", "computing"), ("verdict", "waiting for the verdict"),
                             ("input", "waiting for input")):
            milliseconds = 1000 * worker["worker"]["phases"][phase] / steps
            found = re.search(rf"{words} ([\d.]+) ms", bar)
            self.assertAlmostEqual(float(found.group(1)), milliseconds, delta=0.01 * milliseconds + 0.01)

    def test_recent_means_are_over_the_last_reports(self):
        self.open("training", polls=3)
        self.assertEqual(browser.script("return document.querySelector('input[name=window]:checked').value"),
                         "recent")
        # 20 steps a second, of 50 ms each.
        total = browser.text('#workers-body tr[data-key="worker 0"] td.number')
        self.assertRegex(total, r"^(49|50)(\.\d)? ms$")

    def test_nothing_complains_on_the_console(self):
        for scene in fake_status.SCENES:
            with self.subTest(scene):
                self.open(scene)
                # The browser requests nothing else, and no poll fails.
                self.assertEqual(browser.complaints(), [])

    def test_words_of_peers_are_never_markup(self):
        self.open("hostile")
        self.assertNotIn("owned", browser.driver.title)
        self.assertEqual(browser.script("return document.querySelectorAll('main img, main script, main b').length"), 0)
        for place in ("#attention-body", "#progress", "#tasks-body", "#tables-body", "#events-body", "#version"):
            self.assertIn(fake_status.HOSTILE, browser.text(place).replace("\n", ""), place)
        # The source has no way to run such a script, and the browser refuses the known ways.
        with open(fake_status.PAGE, encoding="utf-8") as page:
            source = page.read()
        self.assertNotRegex(source, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc")
        self.assertTrue(browser.script("try { document.createElement('p').innerHTML = '<i>'; return false; }"
                                       "catch (error) { return error instanceof TypeError; }"))

    def test_needs_nothing_from_elsewhere(self):
        with open(fake_status.PAGE, encoding="utf-8") as page:
            source = page.read()
        self.assertEqual(set(re.findall(r"https?://[^'\" )]+", source)), {"http://www.w3.org/2000/svg"})
        self.open("training", polls=3)
        asked = browser.script("return performance.getEntriesByType('resource').map((e) => e.name)")
        self.assertEqual({re.sub(r"\?.*", "", name).rpartition("/")[2] for name in asked},
                         {"status.json", "events.json", "history.json"})

    def test_out_of_reach_and_back(self):
        self.open("training")
        step = browser.text("#steps")
        fake.broken.add("training")
        browser.wait(lambda: titles(), "that ps 0 is out of reach")
        self.assertRegex(titles()[0], r"^ps 0 has not answered since \d\d:\d\d:\d\d$")
        # Counted from the last answer, not from when the silence was noticed.
        self.assertEqual(titles()[0].split()[-1], browser.text("#live").split()[-1])
        self.assertIn("last reported", browser.text("#attention-body"))
        self.assertRegex(browser.text("#live"), r"^last answer \d\d:\d\d:\d\d$")
        self.assertIn("No answer", browser.driver.title)
        self.assertNotEqual(browser.text("#steps"), "")
        fake.broken.clear()
        browser.wait(lambda: not titles(), "that ps 0 is back")
        self.assertNotEqual(browser.text("#steps"), step)

    def test_out_of_reach_after_it_was_told_to_stop(self):
        self.open("stopping")
        fake.broken.add("stopping")
        browser.wait(lambda: len(titles()) == 1 and "told to stop" in titles()[0], "that ps 0 has stopped")
        self.assertRegex(titles()[0], r"^ps 0 was told to stop, and has not answered since \d\d:\d\d:\d\d$")
        self.assertIn("The job goes on when ps 0 is started again", browser.text("#attention-body"))

    def test_out_of_reach_from_the_start(self):
        fake.broken.add("training")
        self.open("training", polls=1)
        self.assertIn("Nothing is known of the job yet", browser.text("#attention-body"))
        fake.broken.clear()
        browser.wait(lambda: not titles(), "the job")

    def test_out_of_reach_when_the_job_is_done(self):
        self.open("done")
        fake.broken.add("done")
        browser.wait(lambda: browser.text("#live").startswith("last answer"), "that ps 0 has ended")
        self.assertEqual(titles(), [])
        self.assertIn("The job has ended, and ps 0 with it", browser.script("return document.getElementById('state').textContent"))

    def test_rollback_takes_back_what_was_drawn(self):
        self.open("training", polls=3)
        fake.change["training"] = "rolled_back"
        browser.wait(lambda: "generation 2" in browser.script("return document.getElementById('loss').textContent"), "generation 2 in the curves")
        steps = browser.script("return known.points.map((p) => Number(p.step))")
        self.assertEqual(steps, sorted(set(steps)))
        self.assertIn("went on from the checkpoint of step 5000", browser.text("#progress"))
        numbers = browser.script("return known.events.map((e) => Number(e.number))")
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))

    def test_events_are_newest_first(self):
        self.open("rolled_back")
        self.assertIn("training resumes from step 5000", browser.text("#events-body li"))
        Select(browser.driver.find_element(By.ID, "event-filter")).select_by_value("trouble")
        kinds = browser.texts("#events-body .badge")
        self.assertEqual(kinds, ["generation", "lost"])

    def test_state_line_is_quiet_while_nothing_happens(self):
        self.open("training")
        browser.script("window.said = 0; new MutationObserver(() => ++window.said).observe("
                       "document.getElementById('state'), {subtree: true, childList: true, characterData: true})")
        browser.wait_polls(3)
        self.assertEqual(browser.script("return window.said"), 0)
        self.assertEqual(browser.script("return [...document.querySelectorAll('[aria-live]')].map((e) => e.id)"), ["state"])
        fake.change["training"] = "slow_worker"
        browser.wait(lambda: browser.script("return window.said") > 0, "a changed state line")
        self.assertIn("Worker 2 is slow", browser.script("return document.getElementById('state').textContent"))

    def test_keyboard_reaches_everything(self):
        self.open("large")
        wanted = browser.script("""
          return [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
              .filter((e) => e.checkVisibility() && !(e.type === 'radio' && !e.checked)).length""")
        browser.script("document.activeElement.blur(); window.reached = [];")
        seen = 0
        body = ActionChains(browser.driver)
        for _ in range(wanted):
            body.send_keys(Keys.TAB).perform()
            body.reset_actions()
            found = browser.script("""
              const at = document.activeElement;
              if (at === document.body || window.reached.includes(at)) return null;
              window.reached.push(at);
              return [at.tagName, at.className, getComputedStyle(at).outlineStyle, getComputedStyle(at).outlineWidth]""")
            self.assertIsNotNone(found, f"after {seen} of {wanted}")
            seen += 1
            if seen == 1:
                self.assertEqual(found[:2], ["A", "skip"])
            # The focus ring is visible.
            self.assertNotEqual(found[2], "none", found)
            self.assertGreaterEqual(float(found[3].rstrip("px")), 2, found)
        self.assertEqual(seen, wanted)

    def test_skip_link_leads_to_the_job(self):
        self.open("training")
        ActionChains(browser.driver).send_keys(Keys.TAB).send_keys(Keys.ENTER).perform()
        self.assertEqual(browser.script("return document.activeElement.id"), "main")

    def test_curves_are_read_by_keyboard_and_pointer(self):
        fake.frozen = True
        self.open("training")
        plot = browser.driver.find_element(By.ID, "loss")
        browser.script("arguments[0].focus()", plot)
        plot.send_keys(Keys.HOME)
        browser.wait(lambda: browser.text("#loss .tip") is not None, "the first reading")
        first = plot.get_attribute("aria-valuetext")
        # The first point of the made-up job is at step 40.
        self.assertRegex(first, r"^step 40: training 2\.\d+, evaluation [\d.]+ \(step 1,000\)$")
        plot.send_keys(Keys.ARROW_RIGHT)
        browser.wait(lambda: plot.get_attribute("aria-valuetext").startswith("step 80:"), "the second reading")
        plot.send_keys(Keys.ESCAPE)
        browser.wait(lambda: browser.text("#loss .tip") is None, "no reading")
        rate = browser.driver.find_element(By.ID, "rate")
        ActionChains(browser.driver).move_to_element(rate).perform()
        browser.wait(lambda: "steps/s" in (browser.text("#rate .tip") or ""), "a reading of the rate")

    def test_what_is_unfolded_and_focused_stays(self):
        self.open("large")
        browser.script("const more = document.querySelector('#tasks-body details'); more.open = true;"
                       "more.querySelector('summary').focus()")
        browser.wait_polls(2)
        self.assertTrue(browser.script("return document.querySelector('#tasks-body details').open"))
        self.assertEqual(browser.script("return document.activeElement.tagName"), "SUMMARY")

    def test_large_cluster_is_sorted_and_folded(self):
        self.open("large")
        names = browser.texts("#workers-body > table tbody th")
        self.assertEqual([re.sub(r"\s.*", "", n.removeprefix("worker ")) for n in names[:4]], ["17", "64", "65", "141"])
        self.assertLessEqual(len(names), 13)
        self.assertLessEqual(len(browser.texts("#tasks-body > table tbody tr")), 13)
        self.assertEqual(browser.texts("#tasks-body > table tbody th")[0], "worker 30")
        rows = browser.script("return document.querySelectorAll('#workers-body > table tbody tr,"
                              " #workers-body > details[data-key^=more] tbody tr').length")
        self.assertEqual(rows, 200)
        self.assertIn("of all 200 workers", browser.text("#workers-body .crowd"))
        # The section takes one screenful, not two hundred rows.
        self.assertLess(browser.script("return document.getElementById('workers').offsetHeight"), 900)

    def test_narrow_screens_do_not_scroll_sideways(self):
        for scene in fake_status.SCENES:
            browser.look(width=360, height=780)
            self.open(scene)
            browser.script("for (const d of document.querySelectorAll('details')) d.open = true")
            for width in (360, 390, 768, 1024, 1280):
                with self.subTest(scene=scene, width=width):
                    browser.look(width=width, height=780)
                    browser.script("drawAll()")
                    self.assertLessEqual(browser.script("return document.documentElement.scrollWidth"), width)
                    beyond = browser.script("""
                      const found = [];
                      for (const e of document.querySelectorAll('main *')) {
                        const box = e.getBoundingClientRect();
                        if (box.width > 1 && box.right > innerWidth + 0.5 && !e.closest('.unseen, svg, .stack, .share, thead')) {
                          found.push(e.tagName + '.' + e.className + ' ' + Math.round(box.right));
                        }
                      }
                      return found.slice(0, 5)""")
                    self.assertEqual(beyond, [])

    def test_contrast(self):
        for dark in (False, True):
            for scene in ("training", "lost_task", "full_disk", "failed", "large", "asynchronous", "tables"):
                with self.subTest(dark=dark, scene=scene):
                    browser.look(dark=dark)
                    self.open(scene)
                    browser.script("for (const d of document.querySelectorAll('details')) d.open = true")
                    poor = browser.script(CONTRAST + """
                      const found = new Set();
                      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
                      while (walker.nextNode()) {
                        const e = walker.currentNode.parentElement;
                        if (!walker.currentNode.data.trim() || e.closest('script, style, noscript, .unseen') || !e.checkVisibility()) continue;
                        const style = getComputedStyle(e);
                        const color = parse(e instanceof SVGElement ? style.fill : style.color);
                        const size = parseFloat(style.fontSize);
                        const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
                        const got = contrast(color.rgb, back(e));
                        if (got < (large ? 3 : 4.5)) found.add(`${e.tagName}.${e.className} ${got.toFixed(2)} ${e.textContent.slice(0, 30)}`);
                      }
                      return [...found]""")
                    self.assertEqual(poor, [])
                    # Graphics and borders of controls need a contrast of 3 to 1 (WCAG 1.4.11).
                    poor = browser.script(CONTRAST + """
                      const found = [];
                      const card = back(document.getElementById('curves'));
                      for (const e of document.querySelectorAll('.key i, .stack > i, .share > i, .bar > div')) {
                        const got = contrast(parse(getComputedStyle(e).backgroundColor).rgb, card);
                        if (got < 3) found.push(`${e.className} ${got.toFixed(2)}`);
                      }
                      for (const e of document.querySelectorAll('.plot path, .plot .axis, .plot .mark')) {
                        const got = contrast(parse(getComputedStyle(e).stroke).rgb, card);
                        if (got < 3) found.push(`${e.getAttribute('class')} ${got.toFixed(2)}`);
                      }
                      for (const e of document.querySelectorAll('select, button')) {
                        const got = contrast(parse(getComputedStyle(e).borderTopColor).rgb, card);
                        if (got < 3) found.push(`${e.tagName} ${got.toFixed(2)}`);
                      }
                      return found""")
                    self.assertEqual(poor, [])

    def test_structure(self):
        """The structure that screen readers use."""
        for scene in ("starting", "training", "large", "asynchronous", "tables"):
            with self.subTest(scene):
                self.open(scene)
                self.assertEqual(browser.script("return document.documentElement.lang"), "en")
                levels = browser.script("return [...document.querySelectorAll('h1,h2,h3,h4')].map((e) => Number(e.tagName[1]))")
                self.assertEqual(levels[0], 1)
                self.assertEqual(levels.count(1), 1)
                for above, below in zip(levels, levels[1:]):
                    self.assertLessEqual(below, above + 1)
                self.assertEqual(browser.script("return ['header', 'nav', 'main', 'footer'].map((t) => document.querySelectorAll(t).length)"), [1, 1, 1, 1])
                lacking = browser.script("""
                  const found = [];
                  for (const t of document.querySelectorAll('table')) if (!t.caption || !t.caption.textContent.trim()) found.push('a table without a caption');
                  for (const t of document.querySelectorAll('th')) if (!t.scope) found.push('a th without a scope');
                  for (const s of document.querySelectorAll('main section')) {
                    const by = s.getAttribute('aria-labelledby');
                    if (!by || !document.getElementById(by)) found.push('a section without a name');
                  }
                  for (const s of document.querySelectorAll('svg')) if (s.getAttribute('aria-hidden') !== 'true') found.push('an svg that is read');
                  for (const e of document.querySelectorAll('[role=img], [role=progressbar], [role=slider], progress')) {
                    if (!e.getAttribute('aria-label')) found.push('no name: ' + e.outerHTML.slice(0, 80));
                  }
                  for (const e of document.querySelectorAll('input, select')) if (e.labels.length === 0) found.push('a control without a label');
                  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
                  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push('twice: ' + id);
                  for (const a of document.querySelectorAll('nav a')) if (!document.querySelector(a.getAttribute('href'))) found.push('a link to nowhere');
                  return [...new Set(found)]""")
                self.assertEqual(lacking, [])

    def test_curves_as_tables(self):
        fake.frozen = True
        self.open("training")
        browser.script("document.querySelector('#curves details').open = true")
        rows = browser.texts("#curve-tables > table tbody tr")
        self.assertEqual(len(rows), 20)
        points = browser.script("return known.points")
        self.assertIn(f"{int(points[-1]['step']):,}", rows[0])
        self.assertIn(f"{points[-1]['loss']:.4f}", rows[0])

    def test_every_figure_of_evaluations(self):
        fake.frozen = True
        self.open("figures")
        evaluation = fake.last_status["figures"]["evaluation"]
        tiles = [browser.text(f"#{id}") for id in ("evaluation", "evaluation-2", "evaluation-3", "evaluation-4", "evaluation-5")]
        self.assertIn(f"{100 * evaluation['accuracy']:.2f} %", tiles[0])
        self.assertEqual(tiles[1], f"{100 * evaluation['top_k_accuracy']:.2f} %")
        self.assertEqual(tiles[2], f"{evaluation['auc']:.4f}")
        self.assertEqual(tiles[3], f"{evaluation['mean_squared_error']:.4f}")
        self.assertEqual(tiles[4], "not a number")
        choice = Select(browser.driver.find_element(By.ID, "figure-choice"))
        self.assertEqual([option.text for option in choice.options],
                         ["Accuracy", "Top-k accuracy", "AUC", "Mean squared error", "NDCG", "recall_at_10"])
        plot = browser.driver.find_element(By.ID, "accuracy")
        for name, title, value in (
                ("AUC", "AUC of evaluations", f"{evaluation['auc']:.4f}"),
                ("Top-k accuracy", "Top-k accuracy of evaluations, %", f"{100 * evaluation['top_k_accuracy']:.2f} %"),
                ("recall_at_10", "recall_at_10 of evaluations", f"{evaluation['metrics']['recall_at_10']:.4f}")):
            choice.select_by_visible_text(name)
            self.assertEqual(browser.text("#accuracy-caption"), title)
            self.assertEqual(plot.get_attribute("aria-valuetext").replace("\u00a0", " "),
                             f"step {int(evaluation['step']):,}: {name} {value}")
        browser.wait_polls(2)
        self.assertEqual(choice.first_selected_option.text, "recall_at_10")
        choice.select_by_visible_text("NDCG")
        self.assertEqual(browser.script("return document.querySelector('#accuracy svg').textContent"), "No evaluation yet.")
        browser.script("document.querySelector('#curves details').open = true")
        self.assertEqual(browser.texts("#curve-tables .part thead th")[1:],
                         ["Loss", "Accuracy", "Top-k accuracy", "AUC", "Mean squared error", "NDCG"])
        self.open("training")
        self.assertFalse(browser.driver.find_element(By.ID, "figure-choice").is_displayed())

    def test_asynchronous_job_speaks_of_tickets(self):
        self.open("asynchronous")
        self.assertRegex(browser.text("#steps"), r"^ticket [\d,]+ of 20,000$")
        self.assertIn("Staleness", browser.text("#pushes"))
        self.assertNotIn("Waited for", browser.text("#workers"))

    def test_what_passes_through_shared_memory(self):
        self.open("training")
        self.assertEqual(browser.texts("#shards-body thead th")[-1], "Shared memory")
        rows = [" ".join(row.split()) for row in browser.texts("#shards-body > table tbody tr")]
        self.assertTrue(rows[0].endswith("–"), rows[0])
        self.assertTrue(rows[1].endswith("3 MiB 1 link 24 MiB lent"), rows[1])

    def test_embedding_tables_are_summed_over_the_ps(self):
        self.open("tables")
        self.assertEqual(browser.texts("#tables-body thead th"),
                         ["Table", "Rows", "Candidates", "Rows read", "Found", "Admitted", "Expired", "Evicted"])
        self.assertEqual([browser.texts(f"#tables-body tbody tr:nth-child({i}) > *") for i in (1, 2)], [
            ["items", "2,468,000", "162,001", "80,000,000", "97.5 %", "4,000,000", "1,400,000", "132,000"],
            ["users", "1,135", "0", "0", "–", "1,135", "0", "0"]])
        self.assertIn("Embedding tables", browser.text("nav"))
        # 60 MiB of tables, and 136 MiB for everything else.
        self.assertIn("embedding tables", browser.text("#memory-body"))
        self.assertEqual(browser.texts("#memory-body tbody tr:first-child td")[1], "196 MiB of 256 MiB")

    def test_jobs_without_embedding_tables_show_none(self):
        self.open("training")
        for id in ("tables", "tables-link"):
            self.assertFalse(browser.driver.find_element(By.ID, id).is_displayed())
        self.assertNotIn("mbedding", browser.text("body"))

    def test_shares_of_a_checkpoint_that_is_being_written(self):
        self.open("slow_disk")
        self.assertEqual(browser.texts("#checkpoints .writing span")[:2], ["ps 2", "9 MiB of 48 MiB"])


if __name__ == "__main__":
    unittest.main()
