// The status view: the server's health in a word, its rate over the last minutes, its queue and its memory.

import { decimal, duration, percent, text, whole } from './owner.js';
import { graphic, make } from './parts.js';

/** What the server does, by its phase: the names of a word, and of a sentence where it does not answer questions. */
const PHASES = {
  ready: ['ready'],
  unloaded: ['resting'],
  loading_again: ['loading'],
  loading: ['loading', 'is-loading'],
  tuning: ['tuning', 'is-tuning'],
  draining: ['stopping', 'is-stopping'],
  failed: ['failed', 'has-failed'],
};

/** Looks that the graph shows. */
const SAMPLES = 90;

/** The server's health as `[word, sentence]`, the sentence where it does not answer. */
export function healthOf(health) {
  if (health.isThere === null) return ['…'];
  if (!health.isThere) return [text('offline'), text('is-offline')];
  if (health.isLocked) return [text('locked'), text('is-locked')];
  const names = PHASES[health.status.phase];
  return names ? names.map((name) => text(name)) : [health.status.phase, text('is-not-ready')];
}

/** The dialog with all of it. */
export class Panel {
  #health;
  #rates = [];
  #rate = document.getElementById('rate');
  #line = document.querySelector('#graph polyline');
  #facts = document.getElementById('facts');

  constructor(health) {
    this.#health = health;
    health.addEventListener('change', () => this.#show());
  }

  #show() {
    const { status, isThere } = this.#health;
    this.#rates = [...this.#rates, (isThere && status?.tokens_per_s) || 0].slice(-SAMPLES);
    this.#rate.textContent = isThere && status ? decimal(status.tokens_per_s) : '–';
    this.#line.setAttribute('points', points(this.#rates));
    const facts = isThere && status ? factsOf(status) : [];
    this.#facts.replaceChildren(...[[text('health'), healthOf(this.#health)[0]], ...facts].map(fact));
  }
}

/** Name, value, and where it is a part of a whole, how much of it. */
function factsOf(status) {
  const { running, slots, queued, kv_tokens_used: used, kv_tokens: all, roofline_share: share } = status;
  const facts = [
    [text('answering'), text('part-of', { part: whole(running), all: whole(slots) }), running / slots],
    [text('waiting'), whole(queued)],
    [text('memory'), text('tokens-of', { part: whole(used), all: whole(all) }), used / all],
  ];
  if (Number.isFinite(share)) facts.push([text('bandwidth'), percent(share), share]);
  const more = [['model', status.model], ['device', status.device], ['uptime', duration(status.uptime_s)]];
  return [...facts, ...more.map(([name, value]) => [text(name), value])];
}

function fact([name, value, share]) {
  const group = make('div', '');
  const [term, detail] = [make('dt', '', name), make('dd', '', value)];
  detail.dir = 'auto';
  group.append(term, detail);
  if (Number.isFinite(share)) group.append(bar(share));
  return group;
}

/** A bar for who sees. The text beside it says the same. */
function bar(share) {
  return graphic('rect', { width: `${Math.min(share, 1) * 100}%` }, { class: 'bar' });
}

/** The graph's points: the newest rate at the right, the highest at the top. */
function points(rates) {
  const most = Math.max(...rates, 1);
  const x = (i) => (120 * (i + SAMPLES - rates.length)) / (SAMPLES - 1);
  return rates.map((rate, i) => `${x(i).toFixed(1)},${(31 - (30 * rate) / most).toFixed(1)}`).join(' ');
}
