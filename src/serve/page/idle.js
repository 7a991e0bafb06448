// A kiosk's next visitor finds the page as it was at first: `?idle=SECONDS` in the page's address says after how long
// without a touch.

import { count } from './owner.js';

/** The most seconds for which the page asks whether its visitor is still there. */
const WARNING_S = 20;

/**
 * Calls `renew` after that time without a sign of a visitor and without a word of the server to a question (`heard`, by
 * `performance.now()`). Where `hasSomething` would be lost the page asks before. Without `?idle` it never does.
 */
export function watchIdle({ hasSomething, heard, renew }) {
  const limit = Number(new URLSearchParams(location.search).get('idle')) * 1000;
  if (!(limit > 0)) return;
  const dialog = document.getElementById('idle-dialog');
  const seconds = document.getElementById('idle-seconds');
  let touched = performance.now();
  /** Whether the page is as it was at first. */
  let isFresh = true;
  const touch = () => {
    touched = performance.now();
    isFresh = false;
  };
  for (const sign of ['pointerdown', 'pointermove', 'keydown', 'wheel', 'input']) {
    addEventListener(sign, touch, { passive: true });
  }

  const look = () => {
    const left = Math.max(touched, heard()) + limit - performance.now();
    seconds.textContent = count(Math.max(Math.ceil(left / 1000), 0), 'second', 'narrow');
    if (left <= 0 && !isFresh) {
      for (const open of document.querySelectorAll('dialog[open]')) open.close();
      isFresh = true;
      renew();
    } else if (left > Math.min(WARNING_S * 1000, limit / 2)) {
      if (dialog.open) dialog.close();
    } else if (hasSomething() && !isFresh && !dialog.open) {
      dialog.showModal();
    }
  };
  setInterval(look, 250);
}
