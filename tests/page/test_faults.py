"""What may go wrong on a question's way, and what the page makes of it."""
import re
import time

from case import Case, faults, status, turn
from front import DONE, EVENTS, answer_of


def refusal(status, message, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda exchange: exchange.send(status, {"error": {"message": message}}, headers)


def answer_that_is_cut(exchange):
    exchange.begin()
    exchange.say("Half an ans")
    time.sleep(0.2)  # so that the page has it
    exchange.cut()


def cut_at_once(exchange):
    exchange.begin()  # else the browser itself asks again
    exchange.cut()


class Faults(Case):
    def test_question_survives_the_server(self):
        page = self.open()
        self.front.down()
        try:
            self.ask(page, "When does the museum open on Sunday?")
            page.until_text(".note", "cannot be reached")
            page.until_text("#banner", "cannot be reached")
            page.until_text("#health", "Offline")
        finally:
            self.front.up()
        self.until_answered(page)
        self.assertTrue(page.text(".answer").strip())
        page.until_text("#health", "Ready")
        page.until("document.getElementById('banner').hidden")
        self.assertEqual(page.text(".note") or "", "")

    def test_server_that_dies_during_an_answer(self):
        page = self.open()
        self.front.hold_after = 2
        self.ask(page, "When does the aquarium open on Saturday?")
        page.until("document.querySelector('.answer').innerText.trim()")
        self.front.down()
        try:
            page.until_text(".note", "cut off")
            self.assertTrue(page.text(".answer").strip())
        finally:
            self.front.up()
        page.until_text("#health", "Ready")
        page.click(".note button")
        page.until("document.querySelector('.turn[aria-busy=false] .note')?.textContent === ''")
        self.assertEqual([role for role, _ in self.question_asked()], ["user"])

    def test_full_conversation_forgets_its_oldest_questions_and_says_so(self):
        page = self.open()
        # Two answers that no context of this server takes together, nor one of them beside much else.
        words = ["word " * 1900, "thing " * 1900]
        for count, said in enumerate(words, 1):
            self.front.take(answer_of(said))
            self.ask(page, f"question {count}")
            self.until_answered(page, count)
        self.ask(page, "When does the museum open on Sunday?")
        self.until_answered(page, 3)
        # The server under test left them out by itself, and answered.
        self.assertTrue(page.text(turn(3, ".answer")).strip())
        self.assertEqual(page.text(turn(3, ".note")) or "", "")
        memory = page.text(turn(3, ".memory"))
        self.assertIn("has forgotten the oldest questions", memory)
        forgotten, of = map(int, re.search(r"\((\d) of (\d)\)", memory).groups())
        self.assertEqual(of, 2)
        self.assertIn(memory, page.run("announcer.textContent"))
        self.assertEqual(faults(page), [])
        # What is forgotten is not sent again, and all of it can still be read.
        self.front.take(answer_of("Yes."))
        self.ask(page, "Really?")
        self.until_answered(page, 4)
        self.assertEqual(len(self.question_asked()), 2 * (3 - forgotten) + 1)
        self.assertNotIn(("user", "question 1"), self.question_asked())
        self.assertIn("word word", page.text(turn(1, ".answer")))

    def test_forgotten_questions_are_said_once_with_a_count_that_runs(self):
        page = self.open()

        def forgetting(count):
            def answer(exchange):
                exchange.begin({**EVENTS, "Kiln-Forgotten-Exchanges": str(count)})
                exchange.say("Yes.")
                exchange.put(DONE)
                exchange.end()

            return answer

        for count, answer in enumerate([answer_of("One."), answer_of("Two."), forgetting(1), answer_of("Yes."), forgetting(2)], 1):
            self.front.take(answer)
            self.ask(page, f"question {count}")
            self.until_answered(page, count)
            said = page.run("[...document.querySelectorAll('.memory')].map((node) => node.textContent)")
            self.assertEqual([re.search(r"\((.*)\)", one)[1] for one in said],
                             [[], [], ["1 of 2"], ["1 of 2"], ["3 of 4"]][count - 1])
            # Those who listen hear it where it begins.
            self.assertEqual("forgotten" in page.run("announcer.textContent"), count == 3)
        self.assertTrue(page.run("document.querySelector('.turn:nth-child(3) .memory') !== null"))
        self.assertEqual(self.question_asked()[0], ("user", "question 2"))
        page.click("#renew")
        self.assertEqual(page.run("document.querySelectorAll('.memory').length"), 0)

    def test_question_that_is_too_long_alone_is_said_to_be_so(self):
        page = self.open()
        full = {"error": {"message": "400 tokens are longer than the context of 256", "code": "context_length_exceeded"}}
        self.front.take(lambda exchange: exchange.send(400, full))
        self.ask(page, "long")
        page.until_text(".note", "longer than the model can read")
        self.assertEqual(page.run("document.querySelectorAll('.note button').length"), 0)

    def test_cut_answer_is_kept_and_named(self):
        page = self.open()
        self.front.take(answer_that_is_cut)
        self.ask(page, "one")
        page.until_text(".note", "cut off")
        self.assertEqual(page.text(".answer").strip(), "Half an ans")
        self.front.take(answer_of("Whole."))
        self.ask(page, "two")
        self.until_answered(page, 2)
        self.assertEqual(self.question_asked(), [("user", "one"), ("assistant", "Half an ans"), ("user", "two")])

    def test_end_without_done_is_a_cut(self):
        page = self.open()
        self.front.take(answer_of("Half an ans", last=b": the end\n\n"))
        self.ask(page, "one")
        page.until_text(".note", "cut off")

    def test_server_that_loses_a_question_again_and_again_gets_it_three_times(self):
        page = self.open()
        for _ in range(5):
            self.front.take(cut_at_once)
        self.ask(page, "one")
        page.until_text(".note", "did not answer")
        self.assertEqual(len(self.front.questions), 3)

    def test_busy_server_is_asked_again_when_it_says(self):
        page = self.open()
        times = []

        def busy(exchange):
            times.append(time.monotonic())
            refusal(503, "the queue is full", Retry_After="2")(exchange)

        def answer(exchange):
            times.append(time.monotonic())
            answer_of("Now.")(exchange)

        self.front.take(busy)
        self.front.take(answer)
        self.ask(page, "one")
        page.until_text(".note", "busy")
        self.until_answered(page)
        self.assertEqual(page.text(".answer").strip(), "Now.")
        self.assertGreaterEqual(times[1] - times[0], 1.9)

    def test_stop_ends_the_wait(self):
        page = self.open()
        self.front.take(refusal(503, "the queue is full", Retry_After="50"))
        self.ask(page, "one")
        page.until_text(".note", "busy")
        page.run("new Promise((resolve) => setTimeout(resolve, 600))")
        page.click("#send")
        page.until_text(".note", "Stopped.")
        self.assertEqual(page.run("question.value"), "one")

    def test_error_in_a_stream_is_shown(self):
        page = self.open()
        self.front.take(answer_of("Half", last=b'data: {"error": {"message": "the device was lost"}}\n\n'))
        self.ask(page, "one")
        page.until_text(".note", "the device was lost")
        self.assertEqual(page.text(".answer").strip(), "Half")

    def test_nonsense_in_a_stream_is_shown(self):
        page = self.open()
        self.front.take(answer_of("Half", last=b"data: {nonsense\n\n"))
        self.ask(page, "one")
        page.until_text(".note", "no answer")

    def test_refusal_is_shown(self):
        page = self.open()
        self.front.take(refusal(400, "the prompt has 5000 tokens, and the context 4096"))
        self.ask(page, "one")
        page.until_text(".note", "The server cannot answer this: the prompt has 5000 tokens")
        self.front.take(answer_of("Now."))
        page.click(".note button")
        page.until_text(".answer", "Now.")
        self.assertEqual(self.question_asked(), [("user", "one")])

    def test_key_is_asked_for(self):
        page = self.open()

        def locked(exchange):
            if exchange.headers.get("Authorization") == "Bearer open sesame":
                return answer_of("Come in.")(exchange)
            refusal(401, "this server needs an API key")(exchange)

        for _ in range(3):
            self.front.take(locked)
        self.ask(page, "one")
        page.until("document.getElementById('key-dialog').open")
        page.type("guess")
        page.key("Enter")
        page.until_text("#key-refused", "does not take this key")
        page.type("open sesame")
        page.key("Enter")
        self.until_answered(page)
        self.assertEqual(page.text(".answer").strip(), "Come in.")
        kept = page.run("[localStorage, sessionStorage].map((storage) => Object.values(storage))")
        self.assertEqual(kept, [[], ["open sesame"]])

    def test_page_of_a_locked_server_asks_for_the_key_at_once(self):
        def locked(exchange):
            if exchange.headers.get("Authorization") == "Bearer open sesame":
                return status()(exchange)
            refusal(401, "this server needs an API key")(exchange)

        self.front.replace("/status", locked)
        page = self.open(health="Locked")
        page.until("document.getElementById('key-dialog').open")
        page.type("guess")
        page.key("Enter")
        page.until_text("#key-refused", "does not take this key")
        page.type("open sesame")
        page.key("Enter")
        page.until_text("#health", "Ready")

    def test_phases_are_said(self):
        for phase, health, banner in [
            ("loading", "Loading", "being loaded"),
            ("tuning", "Tuning", "being tuned"),
            ("draining", "Stopping", "is stopping"),
            ("failed", "Failed", "failed"),
        ]:
            self.front.replace("/status", status(phase))
            page = self.open(health=health)
            page.until_text("#banner", banner)
        self.front.replace("/status", status())
        page.until_text("#health", "Ready")
        page.until("document.getElementById('banner').hidden")

    def test_a_model_that_rests_takes_questions(self):
        for phase, health in [("unloaded", "Resting"), ("loading_again", "Loading")]:
            self.front.replace("/status", status(phase))
            page = self.open(health=health)
            page.until("document.getElementById('status-open').dataset.health === 'ready'")
            page.until("document.getElementById('banner').hidden")

    def test_silence_of_a_dead_machine_is_noticed(self):
        page = self.open()

        def dead(exchange):
            exchange.front.go_on.wait(60)
            exchange.cut()

        def answer(exchange):
            exchange.begin()
            exchange.say("Half an ans")
            dead(exchange)

        self.front.take(answer)
        self.ask(page, "one")
        page.until_text(".answer", "Half an ans")
        self.front.replace("/status", dead)
        page.until_text(".note", "cut off")
        self.front.go_on.set()
