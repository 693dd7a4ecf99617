// Checks an AMQP broker through rabbitmq-client, as an application would use it.
//
// Usage: node check-rabbitmq-client.js URL [URL-AFTER]
//
// Prints a line for each promise that holds and ends with exit code 1 at the
// first that does not. With a second URL it waits for a line on standard input
// (the caller kills the first node) while the library itself goes over to the
// other.
'use strict';

const assert = require('node:assert/strict');
const readline = require('node:readline');
const { Connection } = require('rabbitmq-client');

const run = `rabbitmq-client.${process.pid}`;
const name = (label) => `${run}.${label}`;
const ok = (what) => console.log('ok', what);
const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

// limit turns a promise that never settles into a failure.
function limit(promise, what, millis = 20000) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited in vain for ${what}`)), millis);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function connect(options) {
  const connection = new Connection(options);
  connection.on('error', () => {}); // seen by those who expect it
  await limit(new Promise((resolve) => connection.once('connection', resolve)), 'a connection');
  return connection;
}

async function get(channel, queue) {
  for (let i = 0; i < 500; i++) {
    const message = await channel.basicGet({ queue });
    if (message) return message;
    await sleep(20);
  }
  throw new Error(`no message in ${queue}`);
}

async function publishing(connection) {
  const q = name('publish');
  await connection.queueDeclare({ queue: q, durable: true });
  const publisher = connection.createPublisher({ confirm: true });
  await limit(Promise.all(Array.from({ length: 50 }, (_, i) => publisher.send({ routingKey: q, durable: true }, `m${i}`))), '50 confirms');
  assert.equal((await connection.queueDeclare({ queue: q, passive: true })).messageCount, 50);
  const returned = new Promise((resolve) => publisher.on('basic.return', resolve));
  await publisher.send({ routingKey: name('none'), mandatory: true }, 'back');
  const back = await limit(returned, 'an unroutable message');
  assert.deepEqual([back.replyCode, back.replyText, back.body], [312, 'NO_ROUTE', 'back']);
  ok('confirms and returns');

  const full = name('full');
  await connection.queueDeclare({ queue: full, durable: true, arguments: { 'x-max-length': 1, 'x-overflow': 'reject-publish' } });
  await publisher.send({ routingKey: full, durable: true }, '1');
  await assert.rejects(publisher.send({ routingKey: full, durable: true }, '2'), /rejected by server/);
  ok('refusals of a full queue');

  const seen = [];
  let release;
  const gate = new Promise((resolve) => { release = resolve; });
  const all = new Promise((resolve) => {
    const consumer = connection.createConsumer({ queue: q, queueOptions: { durable: true }, qos: { prefetchCount: 10 } }, async (message) => {
      seen.push(message.body);
      await gate;
      if (seen.length === 50) setTimeout(() => resolve(consumer), 100);
    });
    consumer.on('error', () => {});
  });
  while (seen.length < 10) await sleep(20);
  await sleep(200);
  assert.equal(seen.length, 10, 'the prefetch is kept');
  release();
  await (await limit(all, 'all messages')).close();
  assert.deepEqual(seen, Array.from({ length: 50 }, (_, i) => `m${i}`));
  ok('consuming with prefetch');
  await publisher.close();
  for (const queue of [q, full]) await connection.queueDelete({ queue });
}

async function deadLettering(connection) {
  const [dlx, q, dead] = ['dlx', 'source', 'dead'].map(name);
  await connection.exchangeDeclare({ exchange: dlx, type: 'fanout', durable: true });
  await connection.queueDeclare({ queue: dead, durable: true });
  await connection.queueBind({ queue: dead, exchange: dlx });
  await connection.queueDeclare({ queue: q, durable: true, arguments: { 'x-dead-letter-exchange': dlx } });
  const channel = await connection.acquire();
  await channel.confirmSelect();
  await channel.basicPublish({ routingKey: q, durable: true, messageId: '1', headers: { mine: 'yes' } }, 'bad');
  const message = await get(channel, q);
  channel.basicNack({ deliveryTag: message.deliveryTag, requeue: false });
  const letter = await get(channel, dead);
  const { time, ...death } = letter.headers['x-death'][0];
  const seconds = time instanceof Date ? time.getTime() / 1000 : Number(time);
  assert.ok(Math.abs(seconds - Date.now() / 1000) < 60, `time ${time}`);
  assert.deepEqual(death, { count: 1, reason: 'rejected', queue: q, exchange: '', 'routing-keys': [q] });
  assert.deepEqual([letter.body, letter.messageId, letter.headers.mine], ['bad', '1', 'yes']);
  channel.basicAck({ deliveryTag: letter.deliveryTag });
  await channel.close();
  for (const queue of [q, dead]) await connection.queueDelete({ queue });
  await connection.exchangeDelete({ exchange: dlx });
  ok('dead letters and x-death');
}

async function errors(connection, url) {
  const refused = (code, text, use) => assert.rejects(limit(use(), `${code} ${text}`), (error) => {
    assert.equal(error.code, code, `${error.code}: ${error.message}`);
    assert.ok(error.message.includes(text), `${error.message} does not say ${text}`);
    return true;
  });
  await refused('NOT_FOUND', `no queue '${name('none')}' in vhost '/'`, () => connection.queueDeclare({ queue: name('none'), passive: true }));
  await refused('ACCESS_REFUSED', 'amq.direct', () => connection.exchangeDelete({ exchange: 'amq.direct' }));
  const q = name('args');
  await connection.queueDeclare({ queue: q, durable: true, arguments: { 'x-max-length': 10 } });
  await refused('PRECONDITION_FAILED', "inequivalent arg 'x-max-length'", () => connection.queueDeclare({ queue: q, durable: true, arguments: { 'x-max-length': 11 } }));
  await connection.queueDelete({ queue: q });
  const own = name('own');
  await connection.queueDeclare({ queue: own, exclusive: true });
  const other = await connect(url);
  await refused('RESOURCE_LOCKED', `'${own}'`, () => other.queueDeclare({ queue: own, passive: true }));
  await other.close();
  ok('channel errors');

  for (const [bad, code] of [[url.replace('guest:guest', 'guest:wrong'), 'ACCESS_REFUSED'], [`${url}nowhere`, 'NOT_ALLOWED']]) {
    const failing = new Connection(bad);
    const error = await limit(new Promise((resolve) => failing.once('error', resolve)), code);
    assert.equal(error.code, code, error.message);
    await failing.close();
  }
  ok('connection errors');
}

// survive lets the library go over to another node when the first one dies.
async function survive(url, after) {
  const hosts = [url, after].map((u) => new URL(u).host);
  const connection = await connect({ hosts, username: 'guest', password: 'guest', retryLow: 100, retryHigh: 1000 });
  const q = name('survive');
  const seen = new Set();
  const consumer = connection.createConsumer({ queue: q, queueOptions: { durable: true }, qos: { prefetchCount: 5 } }, async (message) => {
    if (seen.size < 3 && !message.redelivered) await sleep(1000); // in mid-work when the node dies
    seen.add(Number(message.body));
  });
  consumer.on('error', () => {});
  await limit(new Promise((resolve) => consumer.once('ready', resolve)), 'a consumer');
  const publisher = connection.createPublisher({ confirm: true, maxAttempts: 20 });
  const send = (i) => publisher.send({ routingKey: q, durable: true }, String(i));
  await limit(Promise.all(Array.from({ length: 20 }, (_, i) => send(i))), '20 confirms');
  console.log('kill', url);
  const input = readline.createInterface({ input: process.stdin });
  await new Promise((resolve) => input.once('line', resolve));
  input.close();
  for (let i = 20; i < 40; i++) await limit(send(i), 'a confirm after the kill', 40000);
  for (let i = 0; seen.size < 40; i++) {
    assert.ok(i < 1200, `only ${[...seen]} came`);
    await sleep(50);
  }
  await consumer.close();
  await publisher.close();
  await connection.queueDelete({ queue: q });
  await connection.close();
  ok('the death of a node');
}

async function main() {
  const [url, after] = process.argv.slice(2);
  const connection = await connect(url);
  await publishing(connection);
  await deadLettering(connection);
  await errors(connection, url);
  await connection.close();
  if (after) await survive(url, after);
  console.log('done');
}

main().then(() => process.exit(0), (error) => {
  console.log('not ok', error.stack);
  process.exit(1);
});
