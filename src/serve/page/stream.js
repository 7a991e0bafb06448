// A question to the server, and its answer as it comes.

/** Seconds until the next try where a busy server names none. */
const RETRY_S = 5;
/** The longest time that a busy server makes the page wait, in seconds: it may be ready long before. */
const RETRY_MOST_S = 60;

/**
 * Asks `messages` of `model`. Never throws. `onText` gets each piece of the answer, `onThought` each of the model's thought, `onSign` is
 * called for each sign of life, `onForgotten` how many of the oldest exchanges the server left out for want of room. What becomes
 * of it is the result's `end`:
 *
 * - `done`: the answer is whole; `isShort` where it ended at the limit of its length
 * - the reason of `signal`, where that ended it
 * - `lost`: the server was not reached, or the connection ended first
 * - `busy`: the server asks to come again after `seconds`
 * - `locked`: the server wants a key, or another one
 * - `full`: the last message alone is more than the model reads
 * - `nonsense`: the server sent what is no answer
 * - `failed`: the server says in `message` why there is no answer, or no more of it
 */
export async function ask(messages, { model, key, signal, onText, onThought, onSign, onForgotten }) {
  try {
    const headers = { 'Content-Type': 'application/json' };
    if (key) headers.Authorization = `Bearer ${key}`;
    const body = JSON.stringify({ model, messages, stream: true, truncation: 'auto' });
    const response = await fetch('v1/chat/completions', { method: 'POST', headers, body, signal });
    onSign();
    const forgotten = Number(response.headers.get('Kiln-Forgotten-Exchanges') ?? 0);
    if (forgotten > 0) onForgotten(forgotten);
    return response.ok ? await read(response, { onText, onThought, onSign }) : await refusal(response);
  } catch (error) {
    if (signal.aborted) return { end: signal.reason };
    if (error instanceof SyntaxError) return { end: 'nonsense' };
    return { end: 'lost' };
  }
}

async function read(response, { onText, onThought, onSign }) {
  let isShort = false;
  for await (const data of events(response.body, onSign)) {
    if (data === '[DONE]') return { end: 'done', isShort };
    const chunk = JSON.parse(data);
    if (chunk.error) return { end: 'failed', message: chunk.error.message ?? String(chunk.error) };
    const choice = chunk.choices?.[0];
    isShort ||= choice?.finish_reason === 'length';
    if (choice?.delta?.reasoning_content) onThought(choice.delta.reasoning_content);
    if (choice?.delta?.content) onText(choice.delta.content);
  }
  return { end: 'lost' };
}

/** The data of each server-sent event. Comments, which keep the connection alive, have none. */
async function* events(stream, onSign) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onSign();
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines.map((line) => line.replace(/\r$/, ''))) {
        if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
        if (line || !data.length) continue;
        yield data.join('\n');
        data = [];
      }
    }
  } finally {
    // What follows the last event is not waited for.
    reader.cancel().catch(() => {});
  }
}

async function refusal(response) {
  const { status, headers } = response;
  if (status === 401) return { end: 'locked' };
  if (status === 502 || status === 504) return { end: 'lost' };
  if (status === 503 || status === 429) return { end: 'busy', seconds: seconds(headers.get('Retry-After')) };
  const text = await response.text();
  let message = `HTTP ${status}`;
  try {
    const { error } = JSON.parse(text);
    if (error?.code === 'context_length_exceeded') return { end: 'full' };
    message = error?.message ?? message;
  } catch {
    // Something between the page and the server answered.
  }
  return { end: 'failed', message };
}

/** A Retry-After header's seconds: it is a number of them, or a date. */
function seconds(header) {
  const given = Number(header ?? NaN);
  const until = Number.isNaN(given) ? (Date.parse(header) - Date.now()) / 1000 : given;
  return Number.isNaN(until) ? RETRY_S : Math.min(Math.max(Math.ceil(until), 1), RETRY_MOST_S);
}
