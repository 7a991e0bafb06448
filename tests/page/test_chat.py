"""A question's ordinary way: asked, answered, stopped, forgotten."""
import time
import urllib.request

from browser import SHIFT
from case import Case, faults, turn
from front import DONE, answer_of, event_of


class Chat(Case):
    def test_page_is_whole_and_strict(self):
        page = self.open()
        self.assertEqual(page.refusals, [])
        headers = urllib.request.urlopen(self.front.url).headers
        policy = headers["Content-Security-Policy"]
        self.assertIn("default-src 'self'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        # The policy holds in this browser: what is not the server's is not loaded.
        page.run("(new Image().src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw=', 0)")
        page.until("true")
        self.assertIn("Content Security Policy", page.complaints.pop())

    def test_question_is_answered(self):
        page = self.open()
        page.run("""(window.told = [], new MutationObserver(() => told.push(announcer.textContent))
            .observe(announcer, { childList: true }), 0)""")
        self.ask(page, "When does the museum open on Sunday?")
        self.until_answered(page)
        answer = page.text(turn(1, ".answer"))
        self.assertTrue(answer.strip())
        self.assertEqual(page.text(turn(1, ".question")), "When does the museum open on Sunday?")
        self.assertEqual(page.text(turn(1, ".note")) or "", "")
        # The answer is announced once, as a whole.
        self.assertEqual(page.run("told"), [page.run("document.querySelector('.answer').innerText")])
        self.assertEqual(page.refusals, [])

        self.ask(page, "And on Monday?")
        self.until_answered(page, 2)
        roles = [role for role, _ in self.question_asked()]
        self.assertEqual(roles, ["user", "assistant", "user"])
        self.assertTrue(self.front.questions[-1][1]["stream"])
        self.assertEqual(page.run("localStorage.length + sessionStorage.length + document.cookie.length"), 0)

    def test_answer_is_copied_and_read_aloud(self):
        voices = """(navigator.clipboard.writeText = async (text) => { window.copied = text; },
            speechSynthesis.getVoices = () => [{ lang: 'de_DE' }, { lang: 'fr' }],
            speechSynthesis.speak = (said) => { window.said = [said.lang, said.text]; }, 0)"""
        page = self.open(languages="de", health="Bereit")
        page.run(voices)
        self.ask(page, "When does the museum open on Sunday?")
        self.until_answered(page)
        answer = page.run("document.querySelector('.answer').innerText")
        page.click(".actions button:nth-child(1)")
        page.until("document.querySelector('.actions button').ariaLabel === 'Kopiert'")
        self.assertEqual(page.run("copied"), answer)
        page.click(".actions button:nth-child(2)")
        self.assertEqual(page.run("said"), ["de", answer])
        self.assertEqual(faults(page), [])
        # A German voice reads no English.
        page = self.open()
        page.run(voices)
        self.ask(page, "When does the museum open on Sunday?")
        self.until_answered(page)
        named = "[...document.querySelectorAll('.actions button')].map((button) => [button.ariaLabel, button.title, button.innerText])"
        self.assertEqual(page.run(named), [["Copy", "Copy", ""], ["Answer again", "Answer again", ""]])

    def test_last_question_is_answered_again(self):
        page = self.open()
        for said in ["One.", "Two.", "Three."]:
            self.front.take(answer_of(said))
        self.ask(page, "first")
        self.until_answered(page)
        self.ask(page, "second")
        self.until_answered(page, 2)
        again = ".actions [data-label=regenerate]"
        self.assertFalse(page.run(f"document.querySelector('{turn(1, again)}').checkVisibility()"))
        self.write(page, "unsent")
        page.click(turn(2, again))
        page.until_text(turn(2, ".answer"), "Three.")
        self.until_answered(page, 2)
        self.assertEqual(self.question_asked(), [("user", "first"), ("assistant", "One."), ("user", "second")])
        self.assertEqual(page.run("question.value"), "unsent")
        self.assertEqual(page.run("document.activeElement.id"), "send")
        # Where no other answer comes the one that was there stays.
        self.front.take(lambda exchange: exchange.send(400, {"error": {"message": "no"}}))
        page.click(turn(2, again))
        page.until_text(turn(2, ".note"), "cannot answer this: no")
        self.assertEqual(page.text(turn(2, ".answer")).strip(), "Three.")

    def test_last_question_is_changed(self):
        page = self.open()
        for said in ["One.", "Two.", "Three."]:
            self.front.take(answer_of(said))
        self.ask(page, "first")
        self.until_answered(page)
        self.ask(page, "secnd")
        self.until_answered(page, 2)
        edit = "[data-label=edit]"
        self.assertFalse(page.run(f"document.querySelector('{turn(1, edit)}').checkVisibility()"))
        self.write(page, "unsent")
        for leave in ["document.getElementById('edit-end').click()", "Escape"]:
            page.click(turn(2, edit))
            page.until_text("#editing", "is being changed")
            self.assertEqual(page.run("[question.value, document.activeElement.id]"), ["secnd", "question"])
            page.key("Escape") if leave == "Escape" else page.run(leave)
            # Nothing is lost: neither the answer nor what was written.
            self.assertEqual(page.run("[question.value, document.getElementById('editing').hidden]"), ["unsent", True])
            self.assertEqual(page.text(turn(2, ".answer")).strip(), "Two.")
        page.click(turn(2, edit))
        page.run("question.select()")
        page.type("second")
        self.assertEqual(faults(page), [])
        page.click("#send")
        page.until_text(turn(2, ".answer"), "Three.")
        self.until_answered(page, 2)
        self.assertEqual(page.text(turn(2, ".question")), "second")
        self.assertEqual(self.question_asked(), [("user", "first"), ("assistant", "One."), ("user", "second")])
        self.assertEqual(page.run("[question.value, document.getElementById('editing').hidden]"), ["unsent", True])
        # A new conversation has nothing that is being changed.
        page.click(turn(2, edit))
        page.click("#renew")
        self.assertTrue(page.run("document.getElementById('editing').hidden"))

    def test_stop_keeps_what_came(self):
        page = self.open()
        self.front.hold_after = 2
        self.ask(page, "When does the aquarium open on Saturday?")
        page.until("document.querySelector('.answer').innerText.trim()")
        page.until("document.querySelector('#send').ariaLabel === 'Stop'")
        page.run("new Promise((resolve) => setTimeout(resolve, 600))")  # past what counts as a double tap
        page.click("#send")
        page.until_text(".note", "Stopped.")
        self.assertTrue(self.front.peer_left.wait(30), "the request was not ended")
        self.assertTrue(page.text(".answer").strip())
        self.ask(page, "And on Monday?")
        self.until_answered(page, 2)
        self.assertEqual([role for role, _ in self.question_asked()], ["user", "assistant", "user"])
        self.assertEqual(page.text(turn(2, ".note")) or "", "")

    def test_question_that_is_stopped_before_its_answer_comes_back(self):
        page = self.open()
        self.front.take(lambda exchange: exchange.hold())
        self.ask(page, "Who won?")
        page.until("document.querySelector('#send').ariaLabel === 'Stop'")
        page.run("new Promise((resolve) => setTimeout(resolve, 600))")
        page.key("Escape")
        page.until_text(".note", "Stopped.")
        self.assertEqual(page.run("question.value"), "Who won?")
        page.click("#send")
        self.until_answered(page, 2)
        # The model expects questions and answers in turn.
        self.assertEqual(self.question_asked(), [("user", "Who won?")])

    def test_second_tap_does_not_stop(self):
        page = self.open()
        self.front.take(answer_of("Yes."))
        self.write(page, "Really?")
        page.run("(send.click(), send.click())")
        self.until_answered(page)
        self.assertEqual(page.text(".answer").strip(), "Yes.")

    def test_keys(self):
        page = self.open()
        for _ in range(4):
            self.front.take(answer_of("Yes."))
        self.write(page, "one")
        page.key("Enter", SHIFT)
        page.type("two")
        self.assertEqual(page.run("question.value"), "one\ntwo")
        page.key("Enter", code=229)  # the input method's own
        self.assertEqual(self.front.questions, [])
        page.run("question.value = 'one\\ntwo'")
        page.key("Enter")
        self.until_answered(page)
        self.assertEqual(self.question_asked(), [("user", "one\ntwo")])
        self.assertEqual(page.run("document.activeElement.id"), "question")
        page.key("Enter")  # nothing is written: nothing is sent
        page.type("three")
        page.key("Tab")
        self.assertEqual(page.run("document.activeElement.id"), "send")
        page.key("Enter")
        self.until_answered(page, 2)
        self.assertEqual(len(self.front.questions), 2)
        self.assertEqual(page.run("document.activeElement.id"), "send")  # the focus is not lost

    def test_new_conversation_forgets(self):
        page = self.open()

        def answer(exchange):
            exchange.begin()
            exchange.say("A secret")
            exchange.hold()

        self.front.take(answer)
        self.ask(page, "one")
        page.until_text(".answer", "A secret")
        page.click("#renew")
        self.assertTrue(self.front.peer_left.wait(30), "the request was not ended")
        self.assertFalse(page.run("document.body.innerText.includes('secret')"))
        self.assertEqual(page.run("document.activeElement.id"), "question")
        self.front.take(answer_of("Yes."))
        self.ask(page, "two")
        self.until_answered(page)
        self.assertEqual(self.question_asked(), [("user", "two")])

    def test_idle_kiosk_forgets(self):
        page = self.open("?idle=12")
        self.front.take(answer_of("A secret"))
        self.ask(page, "one")
        self.until_answered(page)
        self.write(page, "unsent")
        page.until("document.getElementById('idle-dialog').open")
        page.click("#idle-dialog button")  # somebody is there
        touched = time.monotonic()
        page.until("!document.getElementById('idle-dialog').open")
        page.until("document.getElementById('idle-dialog').open")
        self.assertGreater(time.monotonic() - touched, 4)
        self.assertEqual(page.text(".answer").strip(), "A secret")
        page.until("document.querySelectorAll('.turn').length === 0")
        self.assertEqual(page.run("question.value"), "")
        self.assertFalse(page.run("document.querySelector('dialog').open"))
        self.assertFalse(page.run("document.documentElement.innerText.includes('secret')"))

    def test_thought_is_folded_away_and_no_part_of_the_answer(self):
        page = self.open()

        def answer(exchange):
            exchange.begin()
            for part, text in [("reasoning_content", "Let me "), ("reasoning_content", "see."), ("content", "At nine.")]:
                exchange.put(event_of(text, part))
            exchange.put(DONE)
            exchange.end()

        self.front.take(answer)
        self.ask(page, "one")
        self.until_answered(page)
        self.assertEqual(page.text(".answer").strip(), "At nine.")
        self.assertFalse(page.run("document.querySelector('.thought').open"))
        self.assertEqual(page.text(".thought summary"), "Thought")
        page.click(".thought summary")
        page.until_text(".thought div", "Let me see.")
        self.front.take(answer_of("Later"))
        self.ask(page, "two")
        self.until_answered(page, 2)
        self.assertEqual(self.question_asked(), [("user", "one"), ("assistant", "At nine."), ("user", "two")])
        self.assertEqual(page.run("document.querySelectorAll('.thought').length"), 1)

    def test_length_limit_is_said(self):
        page = self.open()
        short = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}\n\n'
        self.front.take(answer_of("Once upon a", last=short + DONE))
        self.ask(page, "A story")
        page.until_text(".note", "limit of its length")
