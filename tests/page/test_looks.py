"""What is shown, on which screen, to whom."""
import json
import threading

from case import Case, faults, status
from front import DONE, answer_of, event_of

SIZES = [(320, 568), (390, 844), (768, 1024), (1024, 768), (1280, 800), (1366, 768), (1920, 1080), (1080, 1920),
         (3840, 2160)]

MARKDOWN = """### Stages

First **bold**, *slanted*, ~~struck~~ and `x < 1 && y`, but 2*3*4 and a_b_c.

1. one
   - inner
   - second
2. two

- [ ] dash
- [x] done
- plain

| a | b | c | d |
| --- | :--- | :-: | --: |
| 1 | **2** | x \\| y |

> quoted

```python
if a < b:
    print("**no**")
```

---
Last *open
"""

HOSTILE = """<img src=x onerror="window.isBroken = 1"> <script>window.isBroken = 1</script>
[link](javascript:alert(1)) ![picture](http://example.org/x.png) <http://example.org>

```html"onmouseover="alert(1)
</code></pre><script>window.isBroken = 1</script>
```
| <b>x</b> | y |
|---|---|
| <iframe src="http://example.org"></iframe> | z |
"""


class Looks(Case):
    def answer(self, *pieces, **settings):
        page = self.open(**settings)
        self.front.take(answer_of(*pieces))
        self.ask(page, "Show me")
        self.until_answered(page)
        return page

    def test_ring_of_the_focus_is_as_round_as_the_field(self):
        page = self.open()
        page.run("document.getElementById('question').focus()")
        style = "(id) => getComputedStyle(document.getElementById(id)).outlineStyle"
        page.until("document.getElementById('question').matches(':focus-visible')")
        self.assertEqual(page.run(f"[({style})('question'), ({style})('composer')].join()"), "none,solid")

    def test_markdown(self):
        pieces = [MARKDOWN[i:i + 3] for i in range(0, len(MARKDOWN), 3)]
        page = self.answer(*pieces)
        children = page.run("[...document.querySelector('.answer').children].map((child) => child.localName).join()")
        self.assertEqual(children, "h5,p,ol,ul,div,blockquote,div,hr,p")
        for selector, expected in [
            ("h5", "Stages"), ("p strong", "bold"), ("p em", "slanted"), ("p s", "struck"), ("p code", "x < 1 && y"),
            ("ol > li > ul > li:last-child", "second"), ("td strong", "2"), ("td.center", "x | y"), ("td.right", ""),
            ("th.left", "b"), ("> ul > li.task:first-child", "[ ] dash"), ("> ul > li:nth-child(2)", "[x] done"), ("blockquote p", "quoted"),
            ("pre code", 'if a < b:\n    print("**no**")'), ("p:last-child:not(blockquote *)", "Last *open"),
        ]:
            found = page.run(f"document.querySelector({json.dumps('.answer ' + selector)})?.textContent")
            self.assertEqual(found, expected, selector)
        self.assertIn("but 2*3*4 and a_b_c.", page.text(".answer"))
        # Boxes are named, drawn, and copied as they were written.
        self.assertEqual(page.run("[...document.querySelectorAll('.box')].map((box) => box.ariaLabel)"), ["To do", "Done"])
        self.assertIn("[ ] dash\n[x] done\nplain", page.run("document.querySelector('.answer').innerText"))
        sides = page.run("[...document.querySelectorAll('td')].map((cell) => getComputedStyle(cell).textAlign)")
        self.assertEqual(sides, ["start", "left", "center", "right"])

    def test_links_are_text_with_their_address_and_lead_nowhere(self):
        address = "https://museum.example/plan_(a)_b?x=*1*"
        for source, shown, addresses in [
            (f"See [the *plan*]({address}).", f"See the plan ({address}).", [address]),
            ('[Plan](</a b> "title") and ![picture](x.png)', "Plan (/a b) and picture (x.png)", ["/a b", "x.png"]),
            ("<https://a.example/_x_> or <info@a.example>", "https://a.example/_x_ or info@a.example",
             ["https://a.example/_x_", "info@a.example"]),
            ("(https://a.example/_x_y_), www.a.example.", "(https://a.example/_x_y_), www.a.example.",
             ["https://a.example/_x_y", "www.a.example"]),
            ("[https://a.example](https://a.example) [same]()", "https://a.example same", ["https://a.example"]),
            ("[x](javascript:alert(1)) [y][1] [z] a < b", "x (javascript:alert(1)) [y][1] [z] a < b",
             ["javascript:alert(1)"]),
        ]:
            with self.subTest(source):
                page = self.answer(source)
                self.assertEqual(page.text(".answer").strip(), shown)
                found = page.run("[...document.querySelectorAll('.address')].map((node) => node.textContent)")
                self.assertEqual(found, addresses)
                self.assertEqual(page.run("document.querySelectorAll('a, area, img:not(h1 img), form:not([id])').length"), 0)

    def test_code_is_copied_by_its_own_button(self):
        code = "if a < b:\n    print(1)"
        page = self.open()
        page.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        self.front.take(answer_of(f"First\n\n```python\n{code}\n```\n\n- item\n  ```\n  inner\n  ```"))
        self.ask(page, "Show me")
        self.until_answered(page)
        names = page.run("[...document.querySelectorAll('.code button')].map((button) => button.ariaLabel)")
        self.assertEqual(names, ["Copy the code"] * 2)
        page.click(".answer > .code button")
        page.until("document.querySelector('.code button').ariaLabel === 'Copied'")
        self.assertEqual(page.run("copied"), code)
        self.assertEqual(page.run("announcer.textContent"), "Copied")
        page.until("document.querySelector('.code button').ariaLabel === 'Copy the code'")
        page.click("li .code button")
        page.until("copied === 'inner'")
        # The whole answer's copy has the code, and nothing of its button.
        self.assertEqual(page.text(".answer").split(), ["First", *code.split(), "item", "inner"])

    def test_wide_table_says_so_while_it_is(self):
        cells = "|" + "|".join(["some words"] * 5) + "|\n"
        page = self.answer(cells + "|" + "-|" * 5 + "\n" + cells + "\n|a|b|\n|-|-|\n|1|2|", size=(390, 844))
        hint = "[...document.querySelectorAll('.table')].map((table) => getComputedStyle(table, '::after').content)"
        page.until(f"{hint}[0].includes('The table goes on to the side.')")
        self.assertEqual(page.run(hint)[1], "none")
        page.resize(3840, 2160)
        page.until(f"{hint}[0] === 'none'")
        page.resize(320, 568)
        page.until(f"{hint}[0].includes('side')")

    def test_answer_makes_no_markup(self):
        page = self.answer(*[HOSTILE[i:i + 5] for i in range(0, len(HOSTILE), 5)])
        found = page.run("""[...document.querySelectorAll('.answer *')]
            .flatMap((node) => [node.localName, ...node.getAttributeNames()])""")
        self.assertLessEqual(set(found), {
            "p", "pre", "code", "div", "span", "table", "thead", "tbody", "tr", "th", "td", "button", "svg", "path",
            "dir", "tabindex", "role", "aria-label", "aria-hidden", "class", "title", "type", "viewBox", "d",
            "data-label", "data-language", "data-hint", "data-said"})
        self.assertIn("<script>window.isBroken = 1</script>", page.text(".answer"))
        self.assertIsNone(page.run("window.isBroken ?? null"))

    def test_odd_answers_end(self):
        """A pattern that tries all ways to split a run of blanks would take hours for one of these."""
        blanks = " " * 20000
        page = self.open()
        answers = [
            f"# x{blanks}x", f"| a |\n|-{blanks}x", f"```{blanks}`", f"-{blanks}x", "> " * 3000 + "x", "**a " * 3000,
            "[" * 20000, "[a](" * 5000, f"[a]({blanks}", "[a](" + "(" * 20000, "http://" * 3000, "<a:" * 7000,
            f"- [ ]{blanks}x", f"| a |\n|-|\n|{blanks}|x"]
        for count, line in enumerate(answers, 1):
            self.front.take(answer_of(line))
            self.ask(page, "Show me")
            self.until_answered(page, count)

    def test_characters_and_events_survive_any_cut(self):
        page = self.open()
        crab = event_of("🦀").replace(b"\n", b"\r\n")
        inside = crab.index("🦀".encode())
        cuts = [2, 5, inside + 1, inside + 2, inside + 3, len(crab) - 3, len(crab) - 1]
        shown = [threading.Event() for _ in cuts]

        def answer(exchange):
            exchange.begin()
            rest = b""
            for number, cut in enumerate(cuts):
                # Once the number is shown, the page has read up to the cut.
                exchange.put(rest + event_of(str(number)) + crab[:cut])
                shown[number].wait(60)
                rest = crab[cut:]
            exchange.put(rest + DONE)
            exchange.end()

        self.front.take(answer)
        self.ask(page, "Show me")
        for number, event in enumerate(shown):
            page.until_text(".answer", str(number))
            event.set()
        self.until_answered(page)
        self.assertEqual(page.text(".answer").strip(), "".join(f"{number}🦀" for number in range(len(cuts))))

    def test_nothing_is_wider_than_the_screen(self):
        wide = "w" * 400
        page = self.answer(f"{wide}\n\n```\n{wide}\n```\n\n|{wide}|b|\n|-|-|\n|1|2|\n\n- {wide}\n\n`{wide}`")
        for size in SIZES:
            page.resize(*size)
            self.assertLessEqual(page.run("document.documentElement.scrollWidth - innerWidth"), 0, size)
            self.assertLessEqual(page.run("conversation.scrollWidth - conversation.clientWidth"), 0, size)

    def test_no_button_leaves_the_screen(self):
        for language in ["de", "fr"]:
            self.dress(language, text_percent=150, has_keyboard=True, title="Stadtmuseum")
            page = self.answer("Yes.", languages=language, health=None)
            page.click("[data-label=edit]")
            for size in SIZES:
                page.resize(*size)
                outside = page.run("""[...document.querySelectorAll('button')].filter((button) => {
                    const box = button.getBoundingClientRect();
                    return button.checkVisibility() && (box.left < 0 || box.right > innerWidth);
                }).map((button) => button.outerHTML)""")
                self.assertEqual(outside, [], (language, size))

    def test_direction_follows_the_text(self):
        page = self.answer("هذا سطر بالعربية\n\nEnglish\n\n1. واحد")
        blocks = "[...document.querySelectorAll('.answer > *')]"
        directions = page.run(f"{blocks}.map((block) => getComputedStyle(block).direction)")
        self.assertEqual(directions, ["rtl", "ltr", "rtl"])

    def test_text_grows_with_the_screen(self):
        page = self.open()
        found = {}
        for size in SIZES:
            page.resize(*size)
            found[size] = page.run("parseFloat(getComputedStyle(document.documentElement).fontSize)")
        self.assertEqual([found[size] for size in [(390, 844), (1280, 800), (1920, 1080), (1080, 1920)]], [18, 20, 20, 28.08])
        # A screen of twice the pixels shows the same.
        self.assertAlmostEqual(found[3840, 2160], 2 * found[1920, 1080], delta=0.5)
        page.resize(2160, 3840)
        self.assertAlmostEqual(page.run("parseFloat(getComputedStyle(document.documentElement).fontSize)"), 56, delta=0.5)

    def test_targets_fit_a_finger(self):
        self.front.replace("/status", status())
        page = self.open()
        self.front.take(lambda exchange: exchange.send(400, {"error": {"message": "no"}}))
        self.ask(page, "Show me")
        self.until_answered(page)
        for size in SIZES:
            page.resize(*size)
            for dialog in [None, "status-dialog", "language-dialog", "key-dialog", "idle-dialog"]:
                if dialog:
                    page.run(f"document.getElementById('{dialog}').showModal()")
                small = page.run("""[...document.querySelectorAll('button, input, textarea')]
                    .filter((it) => it.checkVisibility()).map((it) => [it.outerHTML, it.getBoundingClientRect()])
                    .filter(([, box]) => box.width < 48 || box.height < 48).map(([html]) => html)""")
                self.assertEqual(small, [], size)
                if dialog:
                    page.run(f"document.getElementById('{dialog}').close()")

    def test_reader_is_not_moved(self):
        page = self.open()
        lines = "\n\n".join(f"Line {i}" for i in range(80))

        def answer(exchange):
            exchange.begin()
            exchange.say(lines)
            exchange.front.go_on.wait(60)
            exchange.say("\n\n" + lines)
            exchange.put(DONE)
            exchange.end()

        self.front.take(answer)
        self.ask(page, "Show me")
        below = "(conversation.scrollHeight - conversation.clientHeight - conversation.scrollTop)"
        page.until(f"document.querySelector('.answer').innerText.includes('Line 79') && {below} < 2")
        page.run("conversation.scrollTop = 100")
        page.until("!document.getElementById('to-end').hidden")
        self.front.go_on.set()
        self.until_answered(page)
        self.assertEqual(page.run("conversation.scrollTop"), 100)
        page.click("#to-end")
        page.until(f"{below} < 2 && document.getElementById('to-end').hidden")

    def test_finished_blocks_keep_their_nodes(self):
        """So that what a reader has selected stays so."""
        page = self.open()

        def answer(exchange):
            exchange.begin()
            exchange.say("First\n\nSec")
            exchange.front.go_on.wait(60)
            exchange.say("ond")
            exchange.put(DONE)
            exchange.end()

        self.front.take(answer)
        self.ask(page, "Show me")
        page.until_text(".answer", "Sec")
        page.run("(window.first = document.querySelector('.answer p'), 0)")
        self.front.go_on.set()
        self.until_answered(page)
        self.assertTrue(page.run("first.isConnected && first.nextSibling.textContent === 'Second'"))

    def test_dark_and_light(self):
        grounds = {}
        for dark in [False, True]:
            page = self.open(dark=dark)
            grounds[dark] = page.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        self.assertGreater(min(grounds[False]), 200)
        self.assertLess(max(grounds[True]), 60)

    def test_nothing_moves_for_who_wants_it_still(self):
        for still, moving in [(False, 1), (True, 0)]:
            page = self.open(still=still)
            self.front.take(lambda exchange: exchange.hold())
            self.ask(page, "Show me")
            page.until("document.querySelector('.turn[aria-busy=true]')")
            self.assertEqual(page.run("document.getAnimations().length"), moving)

    def test_status_view(self):
        self.front.replace("/status", status())
        page = self.open()
        page.click("#status-open")
        page.until_text("#facts", "6 of 8")
        view = page.text("#status-dialog")
        for part in ["61.4 tokens/s", "21,880 of 32,768", "71%", "AMD Radeon 780M", "gemma-3-27b-it", "1 day 2 hr"]:
            self.assertIn(part, view.replace("\n", " "))
        page.key("Escape")
        page.until("!document.getElementById('status-dialog').open")
        self.assertEqual(page.run("document.activeElement.id"), "status-open")

    def test_axe_finds_nothing_serious(self):
        self.front.replace("/status", status())
        for dark in [False, True]:
            page = self.open(dark=dark)
            self.assertEqual(faults(page), [])
            self.front.take(answer_of(MARKDOWN + "\n\n" + "\n\n".join("more" for _ in range(80))))
            self.ask(page, "Show me")
            self.until_answered(page)
            self.assertEqual(faults(page), [])
            self.front.take(lambda exchange: exchange.send(400, {"error": {"message": "no"}}))
            self.ask(page, "Show me")
            self.until_answered(page, 2)
            page.run("conversation.scrollTop = 0")
            page.until("!document.getElementById('to-end').hidden")
            self.assertEqual(faults(page), [])
            for dialog in ["status-dialog", "language-dialog", "key-dialog", "idle-dialog"]:
                page.run(f"document.getElementById('{dialog}').showModal()")
                self.assertEqual(faults(page), [], dialog)
                page.run(f"document.getElementById('{dialog}').close()")
