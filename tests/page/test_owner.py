"""The page with its owner's face: title, logo, words, and the language of its reader."""
import threading
import urllib.request

from case import Case, colors, faults, settings_of, status, turn
from front import answer_of
from test_looks import SIZES

RED = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 40"><rect width="120" height="40" fill="#ff0000"/></svg>'


class Owner(Case):
    def test_owner_dresses_the_page(self):
        size = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
        usual = self.open().run(size)
        self.dress(title="Museum <b>", welcome="Ask me about the museum", hides_status=True, text_percent=150,
                   has_logo=False, questions=["When does the museum open on Sunday?", "Wo ist die Garderobe?"])
        page = self.open(health=None)
        page.until("document.title === 'Museum <b>'")
        page.until_text("#greeting", "Ask me about the museum")
        self.assertEqual(page.text("h1").strip(), "Museum <b>")
        self.assertTrue(page.run("document.getElementById('status-open').hidden"))
        self.assertAlmostEqual(page.run(size), 1.5 * usual)
        self.assertEqual(faults(page), [])
        page.click("#suggestions li:nth-child(1) button")
        self.until_answered(page)
        self.assertEqual(self.question_asked(), [("user", "When does the museum open on Sunday?")])

    def test_page_speaks_the_browsers_language(self):
        self.front.replace("/status", status())
        for wanted, language, health, numbers, refused in [
            ("de-CH,de,en", "de", "Bereit", ["61,4 Token/s", "21.880 von 32.768", "71 %", "1 Tg. 2 Std."],
             "Der Server kann das nicht beantworten: no"),
            ("fr-CA", "fr", "Prêt", ["61,4 jetons/s", "21 880 jetons sur 32 768", "71 %", "1 j 2 h"],
             "Le serveur ne peut pas répondre : no"),
            ("it,es", "es", "Listo", ["61,4 tokens/s", "21.880 de 32.768", "71 %", "1 d 2 h"],
             "El servidor no puede responder: no"),
            ("it", "en", "Ready", ["61.4 tokens/s", "21,880 of 32,768", "71%", "1 day 2 hr"],
             "The server cannot answer this: no"),
        ]:
            with self.subTest(language):
                texts = settings_of(language)["texts"]
                page = self.open(languages=wanted, health=health)
                self.assertEqual(page.run("[document.documentElement.lang, document.documentElement.dir]"), [language, "ltr"])
                self.assertEqual(page.text("#greeting"), texts["greeting"])
                self.assertEqual(page.run("question.placeholder"), texts["ask"])
                named = page.run("[send, conversation].map((node) => node.ariaLabel)")
                self.assertEqual(named, [texts["send"], texts["conversation"]])
                # A word without its braces' value, or a name without a text, is nowhere.
                empty = "[...document.querySelectorAll('[data-text]')].filter((node) => !node.textContent.trim()).length"
                self.assertEqual(page.run(empty), 0)
                page.click("#status-open")
                page.until_text("#facts", "gemma-3-27b-it")
                view = " ".join(page.text("#status-dialog").split())
                for part in numbers:
                    self.assertIn(part, view)
                self.assertEqual(faults(page), [])
                page.key("Escape")
                self.front.take(lambda exchange: exchange.send(400, {"error": {"message": "no"}}))
                self.ask(page, "Hello?")
                self.until_answered(page)
                note = " ".join(page.text(turn(1, ".note span")).split())
                self.assertEqual(note, refused)
                self.assertEqual(page.run("document.querySelector('.note [lang]').lang"), "en")
                self.assertEqual(page.text(".note button"), texts["try-again"])
                self.assertNotIn("{", page.text("body"))

    def test_questions_wrap_and_are_whole(self):
        long = "When does the museum open on Sunday, and what does it cost for two adults and three children?"
        for scale in [100, 150]:
            self.dress(text_percent=scale, questions=[long, "Wo?", "w" * 90])
            page = self.open()
            for size in SIZES:
                page.resize(*size)
                cut = page.run("""[...document.querySelectorAll('#suggestions button')].filter((button) => {
                    const [box, words] = [button.getBoundingClientRect(), document.createRange()];
                    words.selectNodeContents(button);
                    const text = words.getBoundingClientRect();
                    return box.left < 0 || box.right > innerWidth || text.left < box.left || text.right > box.right
                        || text.top < box.top || text.bottom > box.bottom;
                }).length""")
                self.assertEqual(cut, 0, (scale, size))
                # They are read from the top, and are no conversation to go to the end of.
                self.assertEqual(page.run("[conversation.scrollTop, document.getElementById('to-end').hidden]"), [0, True])

    def test_accent_is_the_owners_on_either_ground(self):
        self.dress(accent={"light": "#005f87", "dark": "#6cb6dd"})
        for dark, accent in [(False, (0, 95, 135)), (True, (108, 182, 221))]:
            page = self.open(dark=dark)
            self.write(page, "Hello")
            page.until("send.getAttribute('aria-disabled') === 'false'")
            box = page.run("send.getBoundingClientRect().toJSON()")
            self.assertEqual(colors(page, [[box["x"] + box["width"] / 2, box["y"] + 6]]), [accent])
            page.click("#send")
            self.until_answered(page)
            self.assertEqual(faults(page), [])
            # Letters on the tint of a question are as readable as on the ground.
            page.run("document.getElementById('language-dialog').showModal()")
            self.assertEqual(faults(page), [])

    def test_visitor_chooses_the_language_in_the_middle_of_a_conversation(self):
        page = self.open()
        self.front.take(answer_of("```python\n1\n```\n\n- [x] done"))
        self.ask(page, "Hello?")
        self.until_answered(page)
        self.write(page, "unsent")
        self.assertEqual(page.text("#language-open").strip(), "Language")
        page.click("#language-open")
        names = page.run("[...document.querySelectorAll('#languages button')].map((it) => [it.lang, it.textContent])")
        self.assertEqual(names, [["en", "English"], ["de", "Deutsch"], ["es", "Español"], ["fr", "Français"]])
        current = "document.querySelector('#languages [aria-current=true]').lang"
        self.assertEqual(page.run(current), "en")
        self.assertEqual(page.run("document.activeElement.lang"), "en")
        page.click("#languages [lang=de]")
        page.until("document.documentElement.lang === 'de'")
        texts = settings_of("de")["texts"]
        self.assertEqual(page.run("[question.placeholder, send.ariaLabel, question.value]"),
                         [texts["ask"], texts["send"], "unsent"])
        page.until_text("#health", "Bereit")
        self.assertEqual(page.run(current), "de")
        # What an answer brought changes its words too; the answer stays.
        named = page.run("['.actions button', 'pre', '.box'].map((it) => document.querySelector(it).ariaLabel)")
        self.assertEqual(named[1:], ["Code, python", texts["task-done"]])
        self.assertIn(named[0], [texts["copy"], texts["regenerate"]])
        self.assertEqual(page.text(turn(1, "h2")), texts["question"])
        self.assertFalse(page.run("document.getElementById('language-dialog').open"))
        self.assertEqual(faults(page), [])

    def test_visitors_language_brings_the_owners_words_and_keys(self):
        asked, late = [], threading.Event()

        def settings(exchange):
            wanted = exchange.headers["Accept-Language"]
            asked.append(wanted)
            if wanted == "fr":
                late.wait(60)
            said = settings_of(wanted)
            german = said["texts"]["language"] == "de"
            exchange.send(200, {**said, "has_keyboard": True, "has_logo": False, "title": "Stadtmuseum" if german else None,
                                "welcome": "Guten Tag" if german else "Hello",
                                "questions": ["Wo ist die Garderobe?"] if german else []})

        self.front.replace("/page.json", settings)
        page = self.open()
        page.until_text("#greeting", "Hello")
        self.assertTrue(page.run("document.getElementById('suggestions').hidden"))
        page.click("#language-open")
        page.click("#languages [lang=de]")
        page.until_text("#greeting", "Guten Tag")
        page.until_text("#suggestions", "Garderobe")
        page.until_text("h1", "Stadtmuseum")
        page.click("#question")
        page.until("document.querySelector('#keyboard').innerText.includes('ß')")
        # A language that the server is slow with does not come behind a later choice.
        for tag in ["fr", "en"]:
            page.run(f"document.querySelector('#languages [lang={tag}]').click()")
        page.until_text("#greeting", "Hello")
        page.until_text("h1", "Kiln")
        late.set()
        page.until("performance.getEntriesByName(new URL('page.json', location.href).href).length === 4")
        self.assertEqual(page.run("document.documentElement.lang"), "en")
        self.assertEqual([tag[:2] for tag in asked[:2]] + sorted(asked[2:]), ["en", "de", "en", "fr"])

    def test_kiosk_turns_back_to_its_language(self):
        page = self.open("?idle=4", languages="fr", health="Prêt")
        page.click("#language-open")
        page.click("#languages [lang=de]")
        page.until("document.documentElement.lang === 'de'")
        page.until("document.documentElement.lang === 'fr'")
        self.assertEqual(page.text("#greeting"), settings_of("fr")["texts"]["greeting"])
        # And what was left open is closed.
        page.click("#language-open")
        page.until("!document.getElementById('language-dialog').open")
        # Nothing was said that would be lost: nobody is asked.
        self.assertFalse(page.run("document.getElementById('idle-dialog').open"))

    def test_there_is_no_switch_where_there_is_no_choice(self):
        self.dress(languages=["en"])
        page = self.open()
        self.assertTrue(page.run("document.getElementById('language-open').hidden"))

    def test_waiting_is_said_in_the_language(self):
        page = self.open(languages="de", health="Bereit")
        self.front.take(lambda exchange: exchange.send(503, {"error": {"message": "full"}}, {"Retry-After": "1"}))
        self.front.take(answer_of("Ja."))
        self.ask(page, "Hallo?")
        page.until_text(".note", "Der Server ist ausgelastet. Die Frage wird in 1 Sekunde noch einmal gestellt.")
        self.until_answered(page)

    def test_language_from_the_right_turns_the_page_round(self):
        texts = {**settings_of("en")["texts"], "language": "ar", "direction": "rtl", "greeting": "ماذا تريد أن تعرف؟"}
        self.dress(texts=texts, has_keyboard=True)
        page = self.open(health=None)
        page.until_text("#greeting", "ماذا")
        side = "(id) => document.getElementById(id).getBoundingClientRect().x"
        self.assertLess(page.run(f"({side})('send')"), page.run(f"({side})('question')"))
        page.click("#question")
        # Keys lie where hands know them.
        keys = "[...document.querySelectorAll('.layer:not([hidden]) .row:first-child button')]"
        at = page.run(f"{keys}.slice(0, 2).map((key) => [key.textContent, key.getBoundingClientRect().x])")
        self.assertEqual([at[0][0], at[1][0]], ["q", "w"])
        self.assertLess(at[0][1], at[1][1])
        for size in SIZES:
            page.resize(*size)
            self.assertLessEqual(page.run("document.documentElement.scrollWidth - innerWidth"), 0, size)

    def test_logo_is_seen_and_named_by_the_title(self):
        self.dress(title="Museum")
        logo = "document.querySelector('h1 img')"
        for dark in [False, True]:
            page = self.open(dark=dark)
            page.until(f"{logo}.complete && {logo}.naturalWidth > 0")
            self.assertEqual(page.run(f"{logo}.alt"), "Museum")
            self.assertEqual(page.run("document.querySelector('h1').innerText.trim()"), "")
            box = page.run(f"{logo}.getBoundingClientRect().toJSON()")
            # The bar of the logo, and the ground beside it. In the dark it has a light one, and is not told otherwise.
            middle = box["y"] + box["height"] / 2
            ink, ground = colors(page, [[box["x"] + box["width"] / 2, middle], [box["x"] + 5, middle]])
            self.assertLess(max(ink), 60)
            self.assertGreater(min(ground), 200)
            self.assertEqual(faults(page), [])
        # One that is made for the dark stands there as it is.
        self.dress(title="Museum", has_dark_logo=True)
        self.front.replace("/logo-dark", lambda exchange: exchange.send(200, RED, {"Content-Type": "image/svg+xml"}))
        page = self.open(dark=True)
        page.until(f"{logo}.currentSrc.endsWith('/logo-dark') && {logo}.complete")
        box = page.run(f"{logo}.getBoundingClientRect().toJSON()")
        self.assertEqual(colors(page, [[box["x"] + 2, box["y"] + box["height"] / 2]]), [(255, 0, 0)])

    def test_script_in_a_logo_does_not_run(self):
        headers = urllib.request.urlopen(self.front.url + "logo").headers
        self.assertEqual(headers["Content-Type"], "image/svg+xml")
        page = self.open("logo", health=None)
        self.assertIsNone(page.run("document.documentElement.dataset.ran ?? null"))
        # The browser says on its console what it kept from running.
        page.until("true")
        self.assertTrue(any("sandboxed" in said or "Content Security Policy" in said for said in page.complaints))
        page.complaints.clear()
        # The same picture without the server's headers runs it: the test would see it.
        with urllib.request.urlopen(self.front.url + "logo") as answer:
            picture = answer.read()
        self.front.replace("/logo", lambda exchange: exchange.send(200, picture, {"Content-Type": "image/svg+xml"}))
        page = self.open("logo", health=None)
        page.until("document.documentElement.dataset.ran === '1'")
