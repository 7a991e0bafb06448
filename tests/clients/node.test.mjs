// OpenAI's client for Node.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: `${process.env.KILN_URL}/v1`, apiKey: 'none', maxRetries: 0 });
const question = { model: 'demo', messages: [{ role: 'user', content: 'Who are you?' }], temperature: 0, max_tokens: 16 };

test('a stream adds up to the answer', async () => {
  const whole = await client.chat.completions.create(question);
  assert.ok(whole.choices[0].message.content);
  let text = '';
  let usage;
  const options = { ...question, stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client.chat.completions.create(options)) {
    text += chunk.choices[0]?.delta?.content ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test('a stream can be aborted, and the next question is answered', async () => {
  const stream = await client.chat.completions.create({ ...question, max_tokens: 1000, stream: true });
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta?.content) break;
  }
  stream.controller.abort();
  assert.ok((await client.chat.completions.create(question)).choices[0].message.content);
});

test('logprobs', async () => {
  const answer = await client.chat.completions.create({ ...question, logprobs: true, top_logprobs: 2 });
  for (const token of answer.choices[0].logprobs.content) {
    assert.equal(token.top_logprobs.length, 2);
    assert.equal(token.top_logprobs[0].token, token.token);
  }
});

test('a schema is kept', async () => {
  const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false };
  const response_format = { type: 'json_schema', json_schema: { name: 'number', strict: true, schema } };
  const answer = await client.chat.completions.create({ ...question, max_tokens: 40, response_format });
  assert.ok(Number.isInteger(JSON.parse(answer.choices[0].message.content).n));
});

test('tools are called', async () => {
  const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
  const tools = [{ type: 'function', function: { name: 'weather', parameters } }];
  const options = { ...question, tools, tool_choice: { type: 'function', function: { name: 'weather' } }, max_tokens: 80 };
  const choice = (await client.chat.completions.create(options)).choices[0];
  assert.equal(choice.message.tool_calls[0].function.name, 'weather');
  assert.deepEqual(Object.keys(JSON.parse(choice.message.tool_calls[0].function.arguments)), ['city']);
});

test('errors say which parameter is wrong', async () => {
  await assert.rejects(client.chat.completions.create({ ...question, temperature: 9 }), (e) => {
    assert.equal(e.status, 400);
    assert.equal(e.param, 'temperature');
    return true;
  });
});

test('models', async () => {
  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  assert.ok(names.includes('demo'));
});
