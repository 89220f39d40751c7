// Checks of three HTTP APIs that are offered as one server: petstore, museum
// and models, by the names in rest_test.go, which has what answers for them.

import { equal, fail } from '../peer.mjs';

const outcome = () => 'full';

const names = {
  petstore: 'addPet createUser createUsersWithListInput deleteOrder deletePet deleteUser findPetsByStatus findPetsByTags getInventory getOrderById getPetById getUserByName loginUser logoutUser placeOrder updatePet updatePetWithForm updateUser uploadFile',
  museum: 'buyMuseumTickets createSpecialEvent deleteSpecialEvent getMuseumHours getSpecialEvent getTicketCode listSpecialEvents updateSpecialEvent',
  models: 'createChatCompletion createEmbedding createFile createSpeech downloadFile listFiles listModels retrieveModel',
};

const event = '3be6453c-03eb-4357-ae5a-984a0e574a54';

const call = (p, name, args = {}, options) => p.callTool({ name, arguments: args }, options);

/** good is the result of a call that must succeed. */
async function good(p, name, args, options) {
  const r = await call(p, name, args, options);
  if (r.isError) fail(`${name} failed:`, r);
  return r;
}

/** structured is the structured content of a result, which must be its text too. */
async function structured(p, name, args) {
  const r = await good(p, name, args);
  equal(JSON.parse(r.content[0].text), r.structuredContent.result ?? r.structuredContent, 'text');
  return r.structuredContent;
}

/** failed checks a result that says that the API refused. */
async function failed(p, name, args, ...texts) {
  const r = await call(p, name, args);
  if (!r.isError) fail(`${name}: got`, r, 'want an error within the result');
  for (const text of texts) if (!r.content[0].text.includes(text)) fail(`${name}: got`, r, 'want the text', text);
}

export const checks = {
  tools: {
    outcome,
    async run(p) {
      // By the SDK's own method: from here on it judges structured content by
      // the output schemas.
      const tools = [];
      for (let cursor; ; ) {
        const page = await p.client.listTools(cursor === undefined ? {} : { cursor });
        tools.push(...page.tools);
        if (page.nextCursor === undefined) break;
        cursor = page.nextCursor;
      }
      for (const [server, want] of Object.entries(names)) {
        const got = tools.filter((t) => t.name.startsWith(`${server}__`)).map((t) => t.name.slice(server.length + 2));
        equal(got.sort(), want.split(' '), `tools of ${server}`);
      }
      const pet = tools.find((t) => t.name === 'petstore__getPetById');
      equal(pet.inputSchema.properties.petId.type, 'integer', 'type of petId');
      equal(pet.inputSchema.required, ['petId'], 'required');
      equal(pet.annotations.readOnlyHint, true, 'readOnlyHint of a GET');
      equal(pet.outputSchema?.type, 'object', 'output schema');
      equal(tools.find((t) => t.name === 'petstore__deletePet').annotations.readOnlyHint, false, 'readOnlyHint of a DELETE');
    },
  },
  // Of a petstore: parameters in path and query, JSON and binary bodies.
  'a pet': {
    outcome,
    async run(p) {
      equal((await structured(p, 'petstore__getPetById', { petId: 7 })).name, 'pet 7', 'name');
    },
  },
  'numbers beyond 53 bits': {
    outcome,
    async run(p) {
      const r = await good(p, 'petstore__findPetsByStatus', { status: 'sold' });
      if (!r.content[0].text.includes('9007199254740993')) fail('digits were lost:', r.content[0].text);
      equal(r.structuredContent.result[0].status, 'sold', 'status');
    },
  },
  'JSON body': {
    outcome,
    async run(p) {
      const body = { name: 'Rex ⟨é⟩ "\\"', photoUrls: ['https://pets.example/1'], tags: [{ id: 1, name: 'good' }], status: 'available' };
      equal(await structured(p, 'petstore__addPet', { body }), { id: 10, ...body }, 'pet');
    },
  },
  'binary body': {
    outcome,
    async run(p) {
      const data = Buffer.from([0, 255, 10, 13, 128]);
      const got = await structured(p, 'petstore__uploadFile', { petId: 3, additionalMetadata: 'a & b', body: { data: data.toString('base64') } });
      equal(got, { code: 200, type: 'application/octet-stream', message: 'pet 3, a & b: 00ff0a0d80' }, 'upload');
    },
  },
  'not found': {
    outcome,
    run: (p) => failed(p, 'petstore__getPetById', { petId: 404 }, '404 Not Found', 'There is no pet 404'),
  },
  'wrong arguments': {
    outcome,
    run: (p) => failed(p, 'petstore__getPetById', { petID: 'x' }, 'petId'),
  },
  // Of a museum: lists, dates, images, no content, problem details.
  hours: {
    outcome,
    async run(p) {
      const got = await structured(p, 'museum__getMuseumHours', { startDate: '2026-11-21', limit: 2 });
      equal(got, { result: [1, 2].map((n) => ({ date: `2026-11-2${n}`, timeOpen: '09:00', timeClose: '18:00' })) }, 'hours');
    },
  },
  tickets: {
    outcome,
    async run(p) {
      const body = { email: 'a@example.com', ticketType: 'general', ticketDate: '2026-11-22' };
      const got = await structured(p, 'museum__buyMuseumTickets', { body });
      equal([got.ticketDate, got.confirmationCode], ['2026-11-22', 'for a@example.com'], 'ticket');
    },
  },
  image: {
    outcome,
    async run(p) {
      const { content } = await good(p, 'museum__getTicketCode', { ticketId: event });
      equal([content[0].type, content[0].mimeType], ['image', 'image/png'], 'content');
      equal(Buffer.from(content[0].data, 'base64').subarray(1, 4).toString(), 'PNG', 'signature');
    },
  },
  'no content': {
    outcome,
    async run(p) {
      const { content } = await good(p, 'museum__deleteSpecialEvent', { eventId: event });
      if (!content[0].text.startsWith('204')) fail('deleted:', content);
    },
  },
  'problem details': {
    outcome,
    run: (p) => failed(p, 'museum__getSpecialEvent', { eventId: event }, '404 Not Found', 'No such event', 'It was cancelled.'),
  },
  // Of a model provider: multipart, audio, streams, large schemas.
  models: {
    outcome,
    async run(p) {
      const got = await structured(p, 'models__listModels');
      equal(got.data.map((m) => m.id), ['gpt-one', 'gpt-two'], 'models');
    },
  },
  upload: {
    outcome,
    async run(p) {
      const file = { text: '{"é":1}\n', filename: 'börse "1".jsonl', type: 'application/jsonl' };
      const got = await structured(p, 'models__createFile', { body: { purpose: 'batch', file } });
      equal([got.filename, got.bytes, got.purpose], ['börse "1".jsonl', 9, 'batch'], 'file');
    },
  },
  speech: {
    outcome,
    async run(p) {
      const { content } = await good(p, 'models__createSpeech', { body: { model: 'tts-1', input: 'hello', voice: 'alloy' } });
      equal([content[0].type, content[0].mimeType], ['audio', 'audio/mpeg'], 'content');
      equal(Buffer.from(content[0].data, 'base64').toString(), 'ID3 hello alloy', 'sound');
    },
  },
  completion: {
    outcome,
    async run(p) {
      const body = { model: 'gpt-one', messages: [{ role: 'user', content: 'hello' }] };
      const got = await structured(p, 'models__createChatCompletion', { body });
      equal(got.choices[0].message.content, 'You said hello', 'answer');
    },
  },
  stream: {
    outcome,
    async run(p, { key }) {
      // The API goes on when it is asked for a model with the name of the prompt:
      // so the first part has to be here before there is a second.
      const from = p.mark();
      const told = [];
      let going;
      const onprogress = (n) => {
        told.push(n);
        going ??= good(p, 'models__retrieveModel', { model: key });
      };
      const body = { model: 'gpt-one', stream: true, messages: [{ role: 'user', content: key }] };
      const { content } = await good(p, 'models__createChatCompletion', { body }, { onprogress });
      await going;
      const parts = content[0].text.split('\n').map((line) => JSON.parse(line).choices[0].delta.content);
      equal(parts, ['one', 'two', 'three'], 'parts of the result');
      // The wire is the judge: the SDK forgets the call, and what came before it,
      // when the answer comes in the same read.
      const before = p.wire.slice(from, p.wire.findIndex((m, i) => i >= from && m.result?.content?.[0].text === content[0].text));
      const progress = before.filter((m) => m.method === 'notifications/progress').map((m) => m.params);
      equal(progress.map((n) => n.progress), [1, 2, 3], 'progress');
      equal(progress.map((n) => JSON.parse(n.message).choices[0].delta.content), parts, 'messages');
      equal(told[0]?.progress, 1, 'what the SDK matched to the call');
    },
  },
  'rate limit': {
    outcome,
    run: (p) => failed(p, 'models__createEmbedding', { body: { model: 'text-embedding-3-small', input: 'x' } }, '429 Too Many Requests', 'Slow down'),
  },
};
