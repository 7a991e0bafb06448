// The status view: the server's health in a word, its rate over the last minutes, its queue and its memory.

/** What the server does, by its phase: a word, and a sentence where it does not answer questions. */
const PHASES = {
  ready: ['Ready'],
  unloaded: ['Resting'],
  loading_again: ['Loading'],
  loading: ['Loading', 'The model is being loaded. Questions are answered once it is ready.'],
  tuning: ['Tuning', 'The model is being tuned to this machine. Questions are answered once it is ready.'],
  draining: ['Stopping', 'The server is stopping. It finishes the answers that it has begun.'],
  failed: ['Failed', 'The server cannot answer: its device or its model failed.'],
};

/** Looks that the graph shows. */
const SAMPLES = 90;

/** The server's health as `[word, sentence]`, the sentence where it does not answer. */
export function healthOf(health) {
  if (health.isThere === null) return ['…'];
  if (!health.isThere) return ['Offline', 'The server cannot be reached.'];
  if (health.isLocked) return ['Locked', 'The server needs a key.'];
  return PHASES[health.status.phase] ?? [health.status.phase, 'The server is not ready.'];
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
    this.#facts.replaceChildren(...[['Health', healthOf(this.#health)[0]], ...facts].map(fact));
  }
}

/** Name, value, and where it is a part of a whole, how much of it. */
function factsOf(status) {
  const { running, slots, queued, kv_tokens_used: used, kv_tokens: all, roofline_share: share } = status;
  const facts = [
    ['Answering', `${whole(running)} of ${whole(slots)}`, running / slots],
    ['Waiting', whole(queued)],
    ['Memory for text', `${whole(used)} of ${whole(all)} tokens`, used / all],
  ];
  if (Number.isFinite(share)) facts.push(['Share of memory bandwidth', `${whole(share * 100)} %`, share]);
  return [...facts, ['Model', status.model], ['Device', status.device], ['Running for', duration(status.uptime_s)]];
}

function fact([name, value, share]) {
  const group = document.createElement('div');
  const term = document.createElement('dt');
  const detail = document.createElement('dd');
  term.textContent = name;
  detail.textContent = value;
  detail.dir = 'auto';
  group.append(term, detail);
  if (Number.isFinite(share)) group.append(bar(share));
  return group;
}

/** A bar for who sees. The text beside it says the same. */
function bar(share) {
  const [frame, part] = ['svg', 'rect'].map((tag) => document.createElementNS('http://www.w3.org/2000/svg', tag));
  frame.setAttribute('class', 'bar');
  frame.setAttribute('aria-hidden', 'true');
  part.setAttribute('width', `${Math.min(share, 1) * 100}%`);
  frame.append(part);
  return frame;
}

/** The graph's points: the newest rate at the right, the highest at the top. */
function points(rates) {
  const most = Math.max(...rates, 1);
  const x = (i) => (120 * (i + SAMPLES - rates.length)) / (SAMPLES - 1);
  return rates.map((rate, i) => `${x(i).toFixed(1)},${(31 - (30 * rate) / most).toFixed(1)}`).join(' ');
}

function whole(number) {
  return Math.round(number ?? 0).toLocaleString('en');
}

function decimal(number) {
  return (number ?? 0).toLocaleString('en', { maximumFractionDigits: number < 100 ? 1 : 0 });
}

function duration(seconds) {
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']].map(([unit, name], i, units) => {
    const within = i ? seconds % units[i - 1][0] : seconds;
    return [Math.floor(within / unit), name];
  });
  const first = parts.findIndex(([count]) => count > 0);
  return first < 0 ? '0 s' : parts.slice(first, first + 2).map(([count, name]) => `${count} ${name}`).join(' ');
}
