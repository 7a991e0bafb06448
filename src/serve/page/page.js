// The chat: a conversation that lives in this page's memory alone, and what may befall a question on its way.

import { Health } from './health.js';
import { watchIdle } from './idle.js';
import { OnScreenKeyboard } from './keyboard.js';
import { forgetLanguage, offerLanguages } from './languages.js';
import { dress, owner, text } from './owner.js';
import { Panel, healthOf } from './panel.js';
import { announce, make } from './parts.js';
import { ask } from './stream.js';
import { TurnView, clearTurns, scrollToEnd } from './turn.js';

const get = (id) => document.getElementById(id);
const question = get('question');
const send = get('send');

/** A server that is ready and loses a question this often does not get it again by itself. */
const LOSSES = 3;
/** Seconds without a sign of life after which an answer counts as lost, if the server is not there either. */
const SILENCE_S = 20;
/** Milliseconds in which a second tap on the button that sent does not stop. */
const DOUBLE_TAP_MS = 500;

/** The conversation: `{ question, answer, view, isForgotten }` each; the model is no longer asked with what is forgotten. */
let turns = [];
/**
 * The question that is being answered, or null: `{ turn, before, stop, lose, since, heard }`. `before` is the answer that
 * it had, `stop` the reader's AbortController, `lose` gives the present try up, `since` is the question's time and `heard`
 * that of the last sign of life.
 */
let current = null;
/** The turn whose question is being changed, with what was written in the field before: `{ turn, draft }`, or null. */
let edited = null;

// --- What the owner wants of the page ---

dress();
const keyboard = owner.has_keyboard ? new OnScreenKeyboard(question, () => !current && get('composer').requestSubmit()) : null;
offerLanguages(() => {
  showSuggestions();
  keyboard?.build();
  showHealth();
  showState();
});
showSuggestions();

/** The questions that a tap asks, in the page's language. */
function showSuggestions() {
  get('suggestions').replaceChildren(...owner.questions.map((suggested) => {
    const [entry, button] = [make('li', ''), make('button', 'quiet', suggested)];
    button.type = 'button';
    button.dir = 'auto';
    button.addEventListener('click', () => !current && put(suggested));
    entry.append(button);
    return entry;
  }));
  get('suggestions').hidden = owner.questions.length === 0;
}

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
  showHealth();
  if (health.isLocked && (key ? health.refusedKey === key : !wasLocked)) askForKey();
  wasLocked = health.isLocked;
  if (current && !health.isThere && performance.now() - current.heard > SILENCE_S * 1000) current.lose();
});

function showHealth() {
  const [word, sentence] = healthOf(health);
  get('health').textContent = word;
  get('status-open').dataset.health = health.isReady ? 'ready' : health.isThere ? 'busy' : 'gone';
  if (health.status?.model && !owner.title) document.title = `${health.status.model} – Kiln`;
  showBanner(sentence);
}

/** Says why there are no answers now, and once that there are. */
function showBanner(sentence) {
  const banner = get('banner');
  if (sentence && banner.dataset.sentence !== sentence) announce(sentence);
  if (!sentence && banner.dataset.sentence) announce(text('is-ready'));
  banner.dataset.sentence = sentence ?? '';
  banner.hidden = !sentence;
  banner.textContent = sentence && !health.isThere ? `${sentence} ${text('is-tried-again')}` : (sentence ?? '');
}

get('status-open').addEventListener('click', () => get('status-dialog').showModal());
for (const button of document.querySelectorAll('[data-close]')) {
  button.addEventListener('click', () => button.closest('dialog').close());
}

// --- A question's way ---

/** Asks a turn's question until it is answered, stopped, or cannot be. The answer that it had stays where none comes. */
async function answer(turn) {
  const stop = new AbortController();
  const mine = { turn, before: turn.answer, stop, since: performance.now() };
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
      onText: (piece) => turn.view.add(piece),
      onThought: (piece) => turn.view.think(piece),
      onSign: () => (mine.heard = performance.now()),
      onForgotten: (forgotten) => forget(turn, forgotten),
    });
    if (turn.answer || !(await mayAskAgain(result, turn, stop.signal, () => (losses += 1) < LOSSES))) break;
  }
  if (stop.signal.reason === 'renewed') return;
  turn.answer ||= mine.before;
  turn.view.end(noteOn(stop.signal.reason === 'stopped' ? { end: 'stopped' } : result, turn));
  current = null;
  showState();
}

/** What is said so far, for the server. Questions without an answer are left out: the model expects both in turn. */
function messagesFor(turn) {
  const messages = remembered(turn).flatMap((past) => [
    { role: 'user', content: past.question },
    { role: 'assistant', content: past.answer },
  ]);
  return [...messages, { role: 'user', content: turn.question }];
}

/** What was asked and answered before a turn, as far as the model is asked with it. */
function remembered(turn) {
  return turns.slice(0, Math.max(turns.indexOf(turn), 0)).filter((past) => past.answer && !past.isForgotten);
}

/** The server left out the oldest: the model has no room for all of them. */
function forget(turn, forgotten) {
  const known = remembered(turn);
  for (const past of known.slice(0, forgotten)) past.isForgotten = true;
  const before = turns.slice(0, turns.indexOf(turn)).filter((past) => past.answer);
  turn.view.forget(before.filter((past) => past.isForgotten).length, before.length);
}

/** Waits for what hinders an answer to pass. False where it does not. */
async function mayAskAgain(result, turn, signal, mayLose) {
  switch (result.end) {
    case 'busy':
      turn.view.wait(healthOf(health)[1] ?? text('is-busy'), result.seconds);
      return sleep(result.seconds * 1000, signal);
    case 'lost':
      if (!mayLose()) return false;
      turn.view.wait(text('waits'));
      // A server that lost a question may need a moment to notice itself.
      return (await sleep(500, signal)) && health.becomesReady(signal);
    case 'locked':
      turn.view.wait(text('is-locked'));
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

/** What is said below an answer: `{ text, message, isFault }`, or null. */
function noteOn(result, turn) {
  switch (result.end) {
    case 'done':
      if (result.isShort) return { text: text('is-short') };
      return turn.answer ? null : { text: text('is-empty') };
    case 'stopped':
      return { text: text('is-stopped') };
    case 'lost':
      return { text: text(turn.answer ? 'is-cut' : 'is-unanswered'), isFault: true };
    case 'locked':
      return { text: text('is-locked'), isFault: true };
    case 'nonsense':
      return { text: text('is-nonsense'), isFault: true };
    case 'full':
      return { text: text('is-long') };
    default:
      return { message: result.message, isFault: true };
  }
}

/** Brings buttons in line with what is going on. */
function showState() {
  const isBusy = current !== null;
  get('welcome').hidden = turns.length > 0;
  get('renew').disabled = turns.length === 0;
  get('editing').hidden = !edited;
  send.classList.toggle('busy', isBusy);
  send.setAttribute('aria-label', text(isBusy ? 'stop' : 'send'));
  // A button that is disabled would lose the focus.
  send.setAttribute('aria-disabled', String(!isBusy && !question.value.trim()));
}

// --- What the reader does ---

get('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  if (current) return stopAnswer();
  const asked = question.value.trim();
  if (!asked) return;
  const turn = edited ? reworded(edited.turn, asked) : newTurn(asked);
  // The answer is read now.
  keyboard?.hide();
  endEditing();
  answer(turn);
});

function newTurn(asked) {
  const turn = { question: asked, answer: '', isForgotten: false };
  const again = () => {
    if (current) return;
    if (edited) endEditing();
    answer(turn);
    // The button that had the focus is gone.
    send.focus();
  };
  turn.view = new TurnView(turn, { again, edit: () => !current && edit(turn) });
  turns.push(turn);
  return turn;
}

function stopAnswer() {
  if (performance.now() - current.since < DOUBLE_TAP_MS) return;
  const { turn, before, stop } = current;
  // A question that nothing was said to goes back to where it was written.
  if (!turn.answer && !before && !question.value) question.value = turn.question;
  stop.abort('stopped');
  fit();
}

/** Lets the last question be written anew where questions are written. */
function edit(turn) {
  edited ??= { turn, draft: question.value };
  write(turn.question);
  question.focus();
}

/** Leaves the last question as it is, and the field as it was before. Without an edit it empties the field. */
function endEditing() {
  const draft = edited?.draft ?? '';
  edited = null;
  write(draft);
}

/** The turn with other words, which its answer does not answer. */
function reworded(turn, asked) {
  if (turn.question === asked) return turn;
  turn.question = asked;
  turn.answer = '';
  turn.view.reword();
  return turn;
}

get('edit-end').addEventListener('click', () => {
  endEditing();
  question.focus();
});

question.addEventListener('input', fit);
question.addEventListener('keydown', (event) => {
  // The Enter that ends a composition of characters is the input method's.
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  if (!current) get('composer').requestSubmit();
});
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || document.querySelector('dialog[open]')) return;
  if (current) stopAnswer();
  else if (edited) endEditing();
  else keyboard?.hide();
});

function write(content) {
  question.value = content;
  fit();
}

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
  edited = null;
  clearTurns();
  keyboard?.hide();
  write('');
  announce(text('begins-anew'));
}

/** Asks a question. */
function put(asked) {
  write(asked);
  get('composer').requestSubmit();
  // In the field it would bring the keyboard back before the answer.
  (keyboard ? get('conversation') : question).focus();
}

get('renew').addEventListener('click', () => {
  renew();
  question.focus();
});

watchIdle({
  hasSomething: () => turns.length > 0 || question.value !== '',
  heard: () => current?.heard ?? 0,
  renew() {
    renew();
    forgetLanguage();
  },
});
showState();
health.look();
// A touch screen would open its keyboard over the page, and the page its own.
if (!keyboard && matchMedia('(pointer: fine)').matches) question.focus();
