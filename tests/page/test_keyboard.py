"""The keyboard on the screen, for kiosks that have no other."""
from case import Case, faults, turn
from front import answer_of
from test_looks import SIZES

KEYS = "[...document.querySelectorAll('#keyboard button')].filter((key) => key.checkVisibility())"


def key(character):
    return f".layer:not([hidden]) [data-key=\"{character}\"], .bottom [data-key=\"{character}\"]"


def act(name):
    return f".layer:not([hidden]) [data-act={name}], .bottom [data-act={name}]"


class KeyboardOnScreen(Case):
    def open_with_keys(self, languages="en", **settings):
        self.dress(languages, has_keyboard=True)
        page = self.open(health=None, languages=languages, **settings)
        page.until("document.body.ariaBusy === null")
        page.click("#question")
        page.until("document.getElementById('keyboard').checkVisibility()")
        return page

    def test_there_is_none_unless_the_owner_wants_it(self):
        page = self.open()
        page.click("#question")
        self.assertTrue(page.run("document.getElementById('keyboard').hidden"))
        self.assertEqual(page.run("question.inputMode"), "")

    def test_keys_write_where_the_caret_is_and_enter_sends(self):
        page = self.open_with_keys("de")
        self.assertEqual(page.run("question.inputMode"), "none")
        for character in "gruß":
            page.click(key(character))
        page.click(act("shift"))
        self.assertEqual(page.run("document.querySelector('[data-act=shift]').ariaPressed"), "true")
        for character in "üä":  # the first is a capital, the second is not
            page.click(key(character))
        page.click(act("space"))
        page.click(act("layer"))
        page.click(key("5"))
        page.click(act("layer"))
        page.click(key("?"))
        self.assertEqual(page.run("question.value"), "grußÜä 5?")
        # A capital of its own ß has not; locked capitals stay until they are let go.
        for name in ["shift", "shift"]:
            page.click(act(name))
        for character in "aßb":
            page.click(key(character))
        page.click(act("shift"))
        page.click(key("c"))
        self.assertEqual(page.run("question.value"), "grußÜä 5?AßBc")
        # In the middle, and over what is selected; the keyboard that is plugged in goes on beside it.
        page.run("question.setSelectionRange(4, 9)")
        page.click(key("e"))
        self.assertEqual(page.run("[question.value, question.selectionStart, question.selectionEnd]"), ["grußeAßBc", 5, 5])
        page.type("n")
        page.click(act("delete"))
        page.click(act("delete"))
        self.assertEqual(page.run("[question.value, question.selectionStart]"), ["grußAßBc", 4])
        self.assertEqual(page.run("document.activeElement.id"), "question")
        self.front.take(answer_of("Ja."))
        page.click(act("send"))
        self.until_answered(page)
        self.assertEqual(self.question_asked(), [("user", "grußAßBc")])
        # The answer has the screen, until something is written again.
        self.assertTrue(page.run("document.getElementById('keyboard').hidden"))
        page.click("#question")
        page.until("document.getElementById('keyboard').checkVisibility()")
        page.click(act("hide"))
        self.assertTrue(page.run("document.getElementById('keyboard').hidden"))

    def test_delete_takes_whole_characters_and_repeats_while_it_is_held(self):
        page = self.open_with_keys()
        page.run("(question.value = 'ab👨‍👩‍👧e\u0301'.normalize('NFD'), question.setSelectionRange(99, 99))")
        page.click(act("delete"))
        self.assertEqual(page.run("question.value"), "ab👨‍👩‍👧")
        page.click(act("delete"))
        self.assertEqual(page.run("question.value"), "ab")
        page.run("(question.value = 'x'.repeat(12), question.setSelectionRange(12, 12))")
        release = page.press(act("delete"))
        page.until("question.value.length < 9")
        release()
        left = page.run("question.value.length")
        # Nothing goes on behind the finger: as much time as several repetitions take.
        page.run("new Promise((resolve) => setTimeout(resolve, 300))")
        self.assertEqual(page.run("question.value.length"), left)

    def test_fingers_and_readers_of_the_screen_reach_its_keys(self):
        page = self.open_with_keys()
        page.tap(key("a"))
        page.until("question.value === 'a'")
        page.run(f"document.querySelector('{key('b')}').click()")
        self.assertEqual(page.run("question.value"), "ab")
        named = page.run(f"{KEYS}.map((key) => key.ariaLabel ?? key.textContent)")
        for name in ["q", "Capital letters", "Delete", "Space", "Hide the keyboard", "Send"]:
            self.assertIn(name, named)
        self.assertEqual(page.run("keyboard.role + ' ' + keyboard.ariaLabel"), "group On-screen keyboard")
        # Tab goes past it.
        page.key("Tab")
        page.key("Tab")
        self.assertFalse(page.run("document.getElementById('keyboard').contains(document.activeElement)"))
        page.key("Escape")
        self.assertTrue(page.run("document.getElementById('keyboard').hidden"))

    def test_input_method_completes_what_it_has_in_hand(self):
        page = self.open_with_keys()
        page.run("""(window.told = [], ['compositionend', 'input'].forEach((type) =>
            question.addEventListener(type, (event) => told.push(`${event.type} ${event.data}`))))""")
        page.call("Input.imeSetComposition", text="né", selectionStart=2, selectionEnd=2)
        page.click(key("o"))
        self.assertEqual(page.run("question.value"), "néo")
        self.assertEqual(page.run("told"), ["input né", "compositionend né", "input o"])
        self.assertEqual(page.run("document.activeElement.id"), "question")

    def test_keys_fit_a_finger_and_the_field_stays_in_view(self):
        for language in ["en", "de", "fr", "es"]:
            for scale in [100, 150]:
                self.dress(language, has_keyboard=True, text_percent=scale)
                page = self.open(health=None, languages=language)
                page.until("document.body.ariaBusy === null")
                page.click("#question")
                page.type("A question that is as long as those are that people put to a machine. " * 2)
                for size in SIZES:
                    page.resize(*size)
                    # On a telephone a row of eleven is as narrow as a telephone's own, and the French accents' of thirteen more.
                    least = 44 if size[0] >= 768 else 26 if size[0] >= 390 else 20
                    for _ in range(2):
                        small = page.run(f"""{KEYS}.map((key) => [key.textContent, key.getBoundingClientRect()])
                            .filter(([, box]) => box.width < {least} || box.height < 44).map(([text]) => text)""")
                        self.assertEqual(small, [], (language, size))
                        # A row is one row, and no key leaves it.
                        torn = page.run("""[...document.querySelectorAll('#keyboard .row')].filter((row) => row.checkVisibility()
                            && [...row.children].some((key) => key.offsetTop !== row.firstChild.offsetTop)).length""")
                        self.assertEqual(torn, 0, (language, size))
                        page.run(f"document.querySelector('{act('layer')}').click()")
                    self.assertLessEqual(page.run("document.documentElement.scrollWidth - innerWidth"), 0, size)
                    field, keys, height = page.run("""[composer.getBoundingClientRect().toJSON(),
                        keyboard.getBoundingClientRect().toJSON(), innerHeight]""")
                    self.assertGreaterEqual(field["top"], 0, (language, size))
                    self.assertLessEqual(field["bottom"], keys["top"], (language, size))
                    self.assertLessEqual(keys["bottom"], height, (language, size))
                    wide = page.run(f"{KEYS}.some((key) => key.scrollWidth > key.clientWidth + 1)")
                    self.assertFalse(wide, (language, size))

    def test_axe_finds_nothing_serious(self):
        for dark in [False, True]:
            page = self.open_with_keys("fr", dark=dark)
            page.click(act("shift"))
            self.assertEqual(faults(page), [])

    def test_suggestion_is_answered_without_keys_over_the_answer(self):
        self.dress(has_keyboard=True, questions=["When does the museum open on Sunday?"])
        page = self.open()
        self.assertTrue(page.run("document.getElementById('keyboard').hidden"))
        page.click("#suggestions button")
        self.until_answered(page)
        self.assertTrue(page.run("document.getElementById('keyboard').hidden"))
        self.assertTrue(page.text(turn(1, ".answer")).strip())
