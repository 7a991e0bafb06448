// OpenAI's client for Node, over TCP and over the Unix socket.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import OpenAI from 'openai';
import { Agent, fetch } from 'undici';

const settings = { apiKey: 'none', maxRetries: 0 };
const socket = { fetch, fetchOptions: { dispatcher: new Agent({ connect: { socketPath: process.env.KILN_SOCKET } }) } };
const clients = {
  TCP: new OpenAI({ ...settings, baseURL: `${process.env.KILN_URL}/v1` }),
  'the Unix socket': new OpenAI({ ...settings, baseURL: 'http://localhost/v1', ...socket }),
};
const question = { model: 'demo', messages: [{ role: 'user', content: 'Who are you?' }], temperature: 0, max_tokens: 16 };
// The form of an object that has this one property.
const object = (name, form) => {
  return { type: 'object', properties: { [name]: form }, required: [name], additionalProperties: false };
};

for (const [name, client] of Object.entries(clients)) {
  const ask = (options) => client.chat.completions.create({ ...question, ...options });

  describe(`over ${name}`, () => {
    test('a stream adds up to the answer', async () => {
      const whole = await ask();
      assert.ok(whole.choices[0].message.content);
      let text = '';
      let usage;
      for await (const chunk of await ask({ stream: true, stream_options: { include_usage: true } })) {
        text += chunk.choices[0]?.delta?.content ?? '';
        usage = chunk.usage ?? usage;
      }
      assert.equal(text, whole.choices[0].message.content);
      assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
    });

    test('a stream can be aborted, and the next question is answered', async () => {
      const stream = await ask({ max_tokens: 1000, stream: true });
      for await (const chunk of stream) {
        if (chunk.choices[0]?.delta?.content) break;
      }
      stream.controller.abort();
      assert.ok((await ask()).choices[0].message.content);
    });

    test('logprobs', async () => {
      const content = (await ask({ logprobs: true, top_logprobs: 2 })).choices[0].logprobs.content;
      assert.ok(content.length);
      for (const token of content) {
        assert.equal(token.top_logprobs.length, 2);
        assert.equal(token.top_logprobs[0].token, token.token);
      }
    });

    test('a schema is kept', async () => {
      const json_schema = { name: 'number', strict: true, schema: object('n', { type: 'integer' }) };
      const answer = await ask({ max_tokens: 40, response_format: { type: 'json_schema', json_schema } });
      assert.ok(Number.isInteger(JSON.parse(answer.choices[0].message.content).n));
    });

    test('tools are called', async () => {
      // The demo model knows no cities, and would not end a name by itself.
      const parameters = object('city', { type: 'string', maxLength: 12 });
      const tools = [{ type: 'function', function: { name: 'weather', parameters } }];
      const tool_choice = { type: 'function', function: { name: 'weather' } };
      const choice = (await ask({ tools, tool_choice, max_tokens: 80 })).choices[0];
      assert.equal(choice.message.tool_calls[0].function.name, 'weather');
      assert.deepEqual(Object.keys(JSON.parse(choice.message.tool_calls[0].function.arguments)), ['city']);
    });

    test('errors say which parameter is wrong', async () => {
      await assert.rejects(ask({ temperature: 9 }), { status: 400, param: 'temperature' });
    });

    test('models', async () => {
      const names = [];
      for await (const model of client.models.list()) names.push(model.id);
      assert.ok(names.includes('demo'));
    });
  });
}
