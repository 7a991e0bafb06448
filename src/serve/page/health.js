// What the server says of itself, asked again and again: the page's knowledge of whether it is there, and of its load.

/** Seconds from one look to the next while the server answers. */
const LOOK_S = 2;
/** Seconds to the first and to the latest try after it did not answer. */
const AGAIN_S = 1;
const AGAIN_MOST_S = 15;
/** Seconds that an answer may take. */
const PATIENCE_S = 5;
/** Phases in which questions are answered. A model that was unloaded is loaded for the next one. */
const ANSWERING = ['ready', 'unloaded', 'loading_again'];

/**
 * The server's health. `status` is what /status answered last, or null; `isThere` whether it answered at the last look;
 * `refusedKey` the key that it did not take then, or null. A `change` event follows each look.
 */
export class Health extends EventTarget {
  status = null;
  isThere = null;
  refusedKey = null;
  #key;
  #timer = 0;
  #pause = AGAIN_S;
  #isLooking = false;

  /** `key` gives the server's API key, or an empty string. */
  constructor(key) {
    super();
    this.#key = key;
    document.addEventListener('visibilitychange', () => this.look());
    addEventListener('online', () => this.look());
  }

  get isLocked() {
    return this.refusedKey !== null;
  }

  get isReady() {
    return this.isThere === true && ANSWERING.includes(this.status?.phase);
  }

  /** Looks now, and from then on in turn. A hidden page does not look. */
  async look() {
    clearTimeout(this.#timer);
    if (this.#isLooking || document.hidden) return;
    this.#isLooking = true;
    try {
      const key = this.#key();
      const headers = key ? { Authorization: `Bearer ${key}` } : {};
      const signal = AbortSignal.timeout(PATIENCE_S * 1000);
      const response = await fetch('status', { headers, cache: 'no-store', signal });
      this.refusedKey = response.status === 401 ? key : null;
      if (!response.ok && !this.isLocked) throw new Error(`status ${response.status}`);
      this.status = this.isLocked ? null : await response.json();
      this.isThere = true;
      this.#pause = AGAIN_S;
      this.#lookIn(LOOK_S);
    } catch {
      this.isThere = false;
      this.#lookIn(this.#pause);
      this.#pause = Math.min(this.#pause * 2, AGAIN_MOST_S);
    }
    this.#isLooking = false;
    this.dispatchEvent(new Event('change'));
  }

  #lookIn(seconds) {
    this.#timer = setTimeout(() => this.look(), seconds * 1000);
  }

  /** Looks, and waits until the server is ready. False where `signal` ended the wait. */
  async becomesReady(signal) {
    this.#pause = AGAIN_S;
    this.isThere = false;
    this.look();
    while (!signal.aborted && !this.isReady) {
      await new Promise((resolve) => {
        this.addEventListener('change', resolve, { once: true, signal });
        signal.addEventListener('abort', resolve, { once: true });
      });
    }
    return !signal.aborted;
  }
}
