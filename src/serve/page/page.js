// The chat: a conversation that lives in this page's memory alone, and what may befall a question on its way.

import { Health } from './health.js';
import { Markdown } from './markdown.js';
import { Panel, healthOf } from './panel.js';
import { watchIdle } from './idle.js';
import { ask } from './stream.js';

const get = (id) => document.getElementById(id);
const conversation = get('conversation');
const question = get('question');
const send = get('send');

/** A server that is ready and loses a question this often does not get it again by itself. */
const LOSSES = 3;
/** Seconds without a sign of life after which an answer counts as lost, if the server is not there either. */
const SILENCE_S = 20;
/** Milliseconds in which a second tap on the button that sent does not stop. */
const DOUBLE_TAP_MS = 500;

/** The conversation: `{ question, answer, view }` each. */
let turns = [];
/**
 * The question that is being answered, or null: `{ turn, stop, lose, since, heard }`. `stop` is the reader's
 * AbortController, `lose` gives the present try up, `since` is the question's time and `heard` that of the last sign of
 * life.
 */
let current = null;
/** Whether the newest text is kept in view. It is not while the reader looks at something above it. */
let follows = true;

// --- What the owner wants of the page ---

let owner = {};

/** Shows it. What it does not say stays as it is. */
function dress(settings) {
  owner = settings;
  if (owner.title) document.title = get('title').textContent = owner.title;
  if (owner.welcome) get('greeting').textContent = owner.welcome;
  get('status-open').hidden = owner.hides_status === true;
  document.documentElement.style.setProperty('--scale', String((owner.text_percent ?? 100) / 100));
  const suggestions = (owner.questions ?? []).map((text) => {
    const [entry, button] = [make('li', ''), make('button', 'quiet', text)];
    button.type = 'button';
    button.dir = 'auto';
    button.addEventListener('click', () => !current && put(text));
    entry.append(button);
    return entry;
  });
  get('suggestions').replaceChildren(...suggestions);
  get('suggestions').hidden = suggestions.length === 0;
}

fetch('page.json', { cache: 'no-store', signal: AbortSignal.timeout(10_000) })
  .then((response) => response.json())
  .then(dress)
  .catch(() => {}); // A server without them has the page as it is.

// --- The key, for this tab only ---

let key = sessionStorage.getItem('kiln-key') ?? '';
let asking = null;

/** Asks for the server's key, once at a time. False where none is given. */
function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = get('key-dialog');
    get('key-refused').hidden = !key;
    get('key').value = key = '';
    sessionStorage.removeItem('kiln-key');
    dialog.showModal();
    dialog.addEventListener('close', () => resolve(Boolean(key)), { once: true });
  }).finally(() => (asking = null));
  return asking;
}

get('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  key = get('key').value.trim();
  get('key').value = '';
  if (!key) return;
  sessionStorage.setItem('kiln-key', key);
  get('key-dialog').close();
  health.look();
});

// --- Health ---

const health = new Health(() => key);
new Panel(health);
let wasLocked = false;

health.addEventListener('change', () => {
  const [word, sentence] = healthOf(health);
  get('health').textContent = word;
  get('status-open').dataset.health = health.isReady ? 'ready' : health.isThere ? 'busy' : 'gone';
  if (health.status?.model && !owner.title) document.title = `${health.status.model} – Kiln`;
  showBanner(sentence);
  if (health.isLocked && (key ? health.refusedKey === key : !wasLocked)) askForKey();
  wasLocked = health.isLocked;
  if (current && !health.isThere && performance.now() - current.heard > SILENCE_S * 1000) current.lose();
});

/** Says why there are no answers now, and once that there are. */
function showBanner(sentence) {
  const banner = get('banner');
  if (sentence && banner.dataset.sentence !== sentence) announce(sentence);
  if (!sentence && banner.dataset.sentence) announce('The server is ready.');
  banner.dataset.sentence = sentence ?? '';
  banner.hidden = !sentence;
  banner.textContent = sentence && !health.isThere ? `${sentence} It is tried again by itself.` : (sentence ?? '');
}

get('status-open').addEventListener('click', () => get('status-dialog').showModal());
for (const button of document.querySelectorAll('[data-close]')) {
  button.addEventListener('click', () => button.closest('dialog').close());
}

// --- A question's way ---

/** Asks a turn's question until it is answered, stopped, or cannot be. */
async function answer(turn) {
  const stop = new AbortController();
  const mine = { turn, stop, since: performance.now() };
  current = mine;
  turn.answer = '';
  turn.view.begin();
  showState();
  scrollToEnd(true);
  let result;
  for (let losses = 0; ; ) {
    const lost = new AbortController();
    mine.lose = () => lost.abort('lost');
    mine.heard = performance.now();
    result = await ask(messagesFor(turn), {
      model: health.status?.model,
      key,
      signal: AbortSignal.any([stop.signal, lost.signal]),
      onText: (text) => turn.view.add(text),
      onSign: () => (mine.heard = performance.now()),
    });
    if (turn.answer || !(await mayAskAgain(result, turn, stop.signal, () => (losses += 1) < LOSSES))) break;
  }
  if (stop.signal.reason === 'renewed') return;
  turn.view.end(noteOn(stop.signal.reason === 'stopped' ? { end: 'stopped' } : result, turn));
  current = null;
  showState();
}

/** What is said so far, for the server. Questions without an answer are left out: the model expects both in turn. */
function messagesFor(turn) {
  const messages = turns.slice(0, turns.indexOf(turn)).filter((past) => past.answer).flatMap((past) => [
    { role: 'user', content: past.question },
    { role: 'assistant', content: past.answer },
  ]);
  return [...messages, { role: 'user', content: turn.question }];
}

/** Waits for what hinders an answer to pass. False where it does not. */
async function mayAskAgain(result, turn, signal, mayLose) {
  switch (result.end) {
    case 'busy':
      turn.view.wait(healthOf(health)[1] ?? 'The server is busy.', result.seconds);
      return sleep(result.seconds * 1000, signal);
    case 'lost':
      if (!mayLose()) return false;
      turn.view.wait('The server cannot be reached. The question is asked again once it is back.');
      // A server that lost a question may need a moment to notice itself.
      return (await sleep(500, signal)) && health.becomesReady(signal);
    case 'locked':
      turn.view.wait('The server needs a key.');
      return (await askForKey()) && !signal.aborted;
    default:
      return false;
  }
}

/** False where `signal` ended it early. */
function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(true), ms);
    const end = () => (clearTimeout(timer), resolve(false));
    if (signal.aborted) end();
    signal.addEventListener('abort', end, { once: true });
  });
}

/** What is said below an answer: `{ text, isFault, isFull }`, or null. */
function noteOn(result, turn) {
  switch (result.end) {
    case 'done':
      if (result.isShort) return { text: 'The answer ends here: it reached the limit of its length.' };
      return turn.answer ? null : { text: 'The answer is empty.' };
    case 'stopped':
      return { text: 'Stopped.' };
    case 'lost':
      if (!turn.answer) return { text: 'The server did not answer.', isFault: true };
      return { text: 'The answer was cut off: the connection to the server was lost.', isFault: true };
    case 'locked':
      return { text: 'The server needs a key.', isFault: true };
    case 'full':
      if (messagesFor(turn).length === 1) return { text: 'The question is longer than the model can read. Ask a shorter one.' };
      return { text: 'The conversation is full: the model has no room for more of it. A new one takes the question.', isFault: true, isFull: true };
    default:
      return { text: result.message, isFault: true };
  }
}

// --- The conversation's view ---

/** One question and its answer on the page. */
class TurnView {
  #turn;
  #node = make('article', 'turn');
  #answer = make('div', 'answer');
  #actions = make('p', 'actions');
  #note = make('p', 'note');
  #markdown = new Markdown(this.#answer);
  #frame = 0;
  #countdown = 0;

  constructor(turn) {
    this.#turn = turn;
    const asked = make('div', 'question', turn.question);
    asked.dir = 'auto';
    this.#node.append(make('h2', 'visually-hidden', 'Question'), asked, make('h2', 'visually-hidden', 'Answer'));
    this.#node.append(this.#answer, this.#actions, this.#note);
    get('turns').append(this.#node);
  }

  begin() {
    this.#node.setAttribute('aria-busy', 'true');
    this.#node.classList.remove('fault');
    this.#actions.replaceChildren();
    this.#say('');
    this.#draw();
  }

  add(text) {
    this.#turn.answer += text;
    this.#say('');
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** Says what is waited for, with the seconds that are left. Only the first is announced. */
  wait(sentence, seconds = 0) {
    announce(seconds ? `${sentence} The question is asked again in ${seconds} seconds.` : sentence);
    this.#say(sentence);
    if (!seconds) return;
    const until = performance.now() + seconds * 1000;
    const show = () => {
      if (!this.#node.isConnected) return clearInterval(this.#countdown);
      const left = Math.max(Math.ceil((until - performance.now()) / 1000), 0);
      this.#say(`${sentence} The question is asked again in ${left} s.`, true);
    };
    this.#countdown = setInterval(show, 250);
    show();
  }

  end(note) {
    this.#node.setAttribute('aria-busy', 'false');
    this.#draw();
    this.#say(note?.text ?? '');
    this.#node.classList.toggle('fault', note?.isFault === true);
    if (this.#turn.answer) this.#actions.replaceChildren(...actionsFor(this.#answer));
    if (note?.isFault) {
      const again = make('button', 'quiet', note.isFull ? 'New conversation' : 'Try again');
      // The same conversation would find no room again.
      again.addEventListener('click', () => !current && (note.isFull ? beginWith(this.#turn.question) : answer(this.#turn)));
      this.#note.append(again);
    }
    scrollToEnd();
    announce([this.#answer.innerText, note?.text].filter(Boolean).join('\n'));
  }

  #draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#markdown.show(this.#turn.answer);
    scrollToEnd();
  }

  #say(text, counts = false) {
    if (!counts) clearInterval(this.#countdown);
    if (this.#note.textContent === text) return;
    this.#note.textContent = text;
    scrollToEnd();
  }
}

/** The answer that is read aloud, or was last. */
let spoken = null;
// A browser looks for its voices once it is asked, and has them later.
window.speechSynthesis?.getVoices();

/** What a reader may do with an answer, as far as the browser can. */
function actionsFor(answer) {
  const actions = [];
  // Only a page from this machine or over TLS may write to the clipboard.
  if (navigator.clipboard) {
    actions.push(action('Copy', async (button) => {
      const isCopied = await navigator.clipboard.writeText(answer.innerText).then(() => true, () => false);
      button.textContent = isCopied ? 'Copied' : 'Not copied';
      announce(isCopied ? 'The answer is copied.' : 'The browser does not let the answer be copied.');
    }));
  }
  if (window.speechSynthesis?.getVoices().length) {
    actions.push(action('Read aloud', () => {
      const isSpoken = speechSynthesis.speaking && spoken === answer;
      speechSynthesis.cancel();
      if (isSpoken) return;
      spoken = answer;
      speechSynthesis.speak(new SpeechSynthesisUtterance(answer.innerText));
    }));
  }
  return actions;
}

function action(text, act) {
  const button = make('button', 'quiet', text);
  button.type = 'button';
  button.addEventListener('click', () => act(button));
  return button;
}

function make(tag, className, text = '') {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}

/** Tells those who listen instead of reading. Tokens are not told one by one. */
function announce(text) {
  get('announcer').textContent = text;
}

/** Shows the newest text, unless the reader looks at something above it. */
function scrollToEnd(always = false) {
  follows ||= always;
  if (follows) conversation.scrollTop = conversation.scrollHeight;
  showWhereEnd();
}

function showWhereEnd() {
  const below = conversation.scrollHeight - conversation.clientHeight - conversation.scrollTop;
  get('to-end').hidden = follows || below < 1;
}

conversation.addEventListener('scroll', () => {
  follows = conversation.scrollHeight - conversation.clientHeight - conversation.scrollTop < 40;
  showWhereEnd();
});
new ResizeObserver(() => scrollToEnd()).observe(conversation);
get('to-end').addEventListener('click', () => {
  scrollToEnd(true);
  conversation.focus();
});

/** Brings buttons in line with what is going on. */
function showState() {
  const isBusy = current !== null;
  get('welcome').hidden = turns.length > 0;
  get('renew').disabled = turns.length === 0;
  send.classList.toggle('busy', isBusy);
  send.setAttribute('aria-label', isBusy ? 'Stop' : 'Send');
  // A button that is disabled would lose the focus.
  send.setAttribute('aria-disabled', String(!isBusy && !question.value.trim()));
}

// --- What the reader does ---

get('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  if (current) return stopAnswer();
  const text = question.value.trim();
  if (!text) return;
  const turn = { question: text, answer: '' };
  turn.view = new TurnView(turn);
  turns.push(turn);
  question.value = '';
  fit();
  answer(turn);
});

function stopAnswer() {
  if (performance.now() - current.since < DOUBLE_TAP_MS) return;
  const { turn, stop } = current;
  // A question that nothing was said to goes back to where it was written.
  if (!turn.answer && !question.value) question.value = turn.question;
  stop.abort('stopped');
  fit();
}

question.addEventListener('input', fit);
question.addEventListener('keydown', (event) => {
  // The Enter that ends a composition of characters is the input method's.
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  if (!current) get('composer').requestSubmit();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && current && !document.querySelector('dialog[open]')) stopAnswer();
});

/** Makes the field as high as its text, up to what the style allows. */
function fit() {
  question.style.height = 'auto';
  question.style.height = `${question.scrollHeight}px`;
  showState();
}

/** Forgets everything that was said. */
function renew() {
  current?.stop.abort('renewed');
  current = null;
  turns = [];
  follows = true;
  window.speechSynthesis?.cancel();
  get('turns').replaceChildren();
  question.value = '';
  fit();
  announce('A new conversation begins.');
}

/** Forgets everything that was said, and asks anew. */
function beginWith(text) {
  renew();
  put(text);
}

/** Asks a question. */
function put(text) {
  question.value = text;
  fit();
  get('composer').requestSubmit();
  question.focus();
}

get('renew').addEventListener('click', () => {
  renew();
  question.focus();
});

watchIdle({ hasSomething: () => turns.length > 0 || question.value !== '', heard: () => current?.heard ?? 0, renew });
showState();
health.look();
// A touch screen would open its keyboard over the page.
if (matchMedia('(pointer: fine)').matches) question.focus();
