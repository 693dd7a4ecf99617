// Checks an AMQP broker through amqplib, as an application would use it.
//
// Usage: node check.js URL [URL-AFTER]
//
// Prints a line for each promise that holds and ends with exit code 1 at the
// first that does not. With a second URL it then waits for a line on standard
// input (the caller kills the first node) and goes on over there.
'use strict';

const assert = require('node:assert/strict');
const readline = require('node:readline');
const amqp = require('amqplib');

const run = `amqplib.${process.pid}`;
const name = (label) => `${run}.${label}`;
const ok = (what) => console.log('ok', what);
const persistent = { persistent: true };

// limit turns a promise that never settles into a failure.
function limit(promise, what, millis = 15000) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited in vain for ${what}`)), millis);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function connect(url, options) {
  const connection = await limit(amqp.connect(url, options), 'a connection', 20000);
  connection.on('error', () => {}); // seen by those who expect it
  return connection;
}

async function get(channel, queue) {
  for (let i = 0; i < 500; i++) {
    const message = await channel.get(queue);
    if (message) return message;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`no message in ${queue}`);
}

// refused checks that use(channel) closes its channel with this code and text.
async function refused(connection, code, text, use) {
  const channel = await connection.createChannel();
  const failure = new Promise((resolve) => channel.on('error', resolve));
  await Promise.allSettled([use(channel)]);
  const error = await limit(failure, `${code} ${text}`);
  assert.equal(error.code, code, error.message);
  assert.ok(error.message.includes(text), `${error.message} does not say ${text}`);
  return error;
}

async function publishing(connection) {
  const channel = await connection.createConfirmChannel();
  const q = name('publish');
  await channel.assertQueue(q);
  for (let i = 0; i < 50; i++) channel.sendToQueue(q, Buffer.from(`m${i}`), persistent);
  await limit(channel.waitForConfirms(), '50 confirms');
  assert.equal((await channel.checkQueue(q)).messageCount, 50);

  const returned = new Promise((resolve) => channel.on('return', resolve));
  channel.sendToQueue(name('none'), Buffer.from('back'), { mandatory: true, messageId: 'r-1' });
  const back = await limit(returned, 'an unroutable message');
  assert.equal(back.content.toString(), 'back');
  assert.deepEqual([back.fields.replyCode, back.fields.replyText, back.properties.messageId], [312, 'NO_ROUTE', 'r-1']);
  await limit(channel.waitForConfirms(), 'the confirm of a returned message');
  ok('confirms and returns');

  const full = name('full');
  await channel.assertQueue(full, { maxLength: 1, arguments: { 'x-overflow': 'reject-publish' } });
  const publish = (body) => new Promise((resolve) => channel.sendToQueue(full, Buffer.from(body), persistent, resolve));
  assert.equal(await limit(publish('1'), 'a confirm'), null);
  assert.ok(await limit(publish('2'), 'a refusal') instanceof Error);
  ok('refusals of a full queue');

  const consuming = await connection.createChannel();
  await consuming.prefetch(10);
  const seen = [];
  await limit(new Promise((resolve, reject) => {
    consuming.consume(q, async (message) => {
      try {
        seen.push(message.content.toString());
        assert.equal(message.fields.redelivered, false);
        if (seen.length === 10) assert.equal((await channel.checkQueue(q)).messageCount, 40);
        if (seen.length % 10 === 0) consuming.ack(message, true);
        if (seen.length === 50) resolve();
      } catch (error) {
        reject(error);
      }
    }).catch(reject);
  }), 'all messages');
  assert.deepEqual(seen, Array.from({ length: 50 }, (_, i) => `m${i}`));
  ok('consuming with prefetch');
  for (const each of [q, full]) await channel.deleteQueue(each);
  await consuming.close();
  await channel.close();
}

async function settling(connection) {
  let channel = await connection.createChannel();
  const q = name('settle');
  await channel.assertQueue(q);
  for (const body of ['1', '2', '3', '4']) channel.sendToQueue(q, Buffer.from(body), persistent);
  const got = [];
  for (let i = 0; i < 4; i++) got.push(await get(channel, q));
  channel.nack(got[2], true, true);
  channel.reject(got[3], true);
  const again = [];
  for (let i = 0; i < 4; i++) again.push(await get(channel, q));
  assert.deepEqual(again.map((m) => m.content.toString()), ['1', '2', '3', '4']);
  assert.ok(again.every((m) => m.fields.redelivered));
  await channel.close();
  channel = await connection.createChannel();
  assert.equal((await get(channel, q)).content.toString(), '1');
  await channel.deleteQueue(q);
  await channel.close();
  ok('acks, requeue and order');
}

async function deadLettering(connection) {
  const channel = await connection.createChannel();
  const [work, dlx, q, dead] = ['work', 'dlx', 'source', 'dead'].map(name);
  await channel.assertExchange(work, 'topic');
  await channel.assertExchange(dlx, 'direct');
  await channel.assertQueue(dead);
  await channel.assertQueue(q, { deadLetterExchange: dlx, deadLetterRoutingKey: 'failed' });
  await channel.bindQueue(dead, dlx, 'failed');
  await channel.bindQueue(q, work, 'order.#');
  channel.publish(work, 'order.new', Buffer.from('bad'), { persistent: true, messageId: '1', headers: { mine: 'yes' } });
  channel.reject(await get(channel, q), false);
  const letter = await get(channel, dead);
  const { headers } = letter.properties;
  const { time, ...death } = headers['x-death'][0];
  assert.equal(time['!'], 'timestamp');
  assert.ok(Math.abs(time.value - Date.now() / 1000) < 60, `time ${time.value}`);
  assert.deepEqual(death, { count: 1, reason: 'rejected', queue: q, exchange: work, 'routing-keys': ['order.new'] });
  assert.deepEqual(
    [letter.fields.exchange, letter.fields.routingKey, letter.content.toString(), letter.properties.messageId, headers.mine],
    [dlx, 'failed', 'bad', '1', 'yes']);
  assert.deepEqual(
    [headers['x-first-death-queue'], headers['x-first-death-reason'], headers['x-first-death-exchange']],
    [q, 'rejected', work]);
  channel.ack(letter);

  channel.publish(work, 'order.old', Buffer.from('late'), { persistent: true, expiration: 100 });
  const expired = await get(channel, dead);
  const last = expired.properties.headers['x-death'][0];
  assert.deepEqual(
    [expired.content.toString(), expired.properties.expiration, last.reason, last['original-expiration'], last['routing-keys']],
    ['late', undefined, 'expired', '100', ['order.old']]);
  for (const queue of [q, dead]) await channel.deleteQueue(queue);
  for (const exchange of [work, dlx]) await channel.deleteExchange(exchange);
  await channel.close();
  ok('dead letters and x-death');
}

async function errors(connection, url) {
  const none = name('none');
  const missing = await refused(connection, 404, `NOT_FOUND - no queue '${none}' in vhost '/'`, (c) => c.checkQueue(none));
  assert.deepEqual([missing.classId, missing.methodId], [50, 10]);
  await refused(connection, 404, `NOT_FOUND - no exchange '${none}' in vhost '/'`, async (c) => c.publish(none, 'k', Buffer.from('m')));
  await refused(connection, 403, 'ACCESS_REFUSED', (c) => c.deleteExchange('amq.direct'));
  await refused(connection, 406, 'PRECONDITION_FAILED - unknown delivery tag 99', async (c) => c.ack({ fields: { deliveryTag: 99 } }));
  const channel = await connection.createChannel();
  const q = name('args');
  await channel.assertQueue(q, { maxLength: 10 });
  const other = await refused(connection, 406, `PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '${q}' in vhost '/'`,
    (c) => c.assertQueue(q, { maxLength: 11 }));
  assert.deepEqual([other.classId, other.methodId], [50, 10]);
  const own = name('own');
  await channel.assertQueue(own, { exclusive: true });
  const stranger = await connect(url);
  await refused(stranger, 405, `RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '${own}' in vhost '/'`,
    (c) => c.checkQueue(own));
  await stranger.close();
  await channel.deleteQueue(q);
  await channel.close();
  ok('channel errors');

  const { host } = new URL(url);
  await assert.rejects(connect(`amqp://guest:wrong@${host}/`), /403[^]*ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN/);
  await assert.rejects(connect(`amqp://guest:guest@${host}/nowhere`), /Expected ConnectionOpenOk; got <ConnectionClose/); // all it tells
  ok('connection errors');
}

// survive goes on over another node when the first one dies.
async function survive(connection, url, after) {
  const channel = await connection.createConfirmChannel();
  channel.on('error', () => {});
  const q = name('survive');
  await channel.assertQueue(q);
  for (let i = 0; i < 20; i++) channel.sendToQueue(q, Buffer.from(String(i)), persistent);
  await limit(channel.waitForConfirms(), '20 confirms');
  for (let i = 0; i < 5; i++) await get(channel, q);
  const closed = new Promise((resolve) => connection.on('close', resolve));
  console.log('kill', url);
  const input = readline.createInterface({ input: process.stdin });
  await new Promise((resolve) => input.once('line', resolve));
  input.close();
  await limit(closed, 'the end of the connection');
  const next = await connect(after);
  const consuming = await next.createChannel();
  const held = []; // they come back when the death of their node is noticed
  const fresh = [];
  await limit(new Promise((resolve, reject) => {
    consuming.consume(q, (message) => {
      if (message === null) return; // cancelled: the queue was deleted
      const body = message.content.toString();
      if (Number(body) < 5 && !message.fields.redelivered) reject(new Error('held messages are not marked'));
      (Number(body) < 5 ? held : fresh).push(body);
      consuming.ack(message);
      if (held.length + fresh.length === 20) resolve();
    }).catch(reject);
  }), 'all messages');
  assert.deepEqual([...held, ...fresh], Array.from({ length: 20 }, (_, i) => String(i)));
  await consuming.deleteQueue(q);
  await next.close();
  ok('the death of a node');
}

async function main() {
  const [url, after] = process.argv.slice(2);
  const connection = await connect(url);
  await publishing(connection);
  await settling(connection);
  await deadLettering(connection);
  await errors(connection, url);
  if (after) await survive(connection, url, after);
  else await connection.close();
  console.log('done');
}

main().then(() => process.exit(0), (error) => {
  console.log('not ok', error.stack);
  process.exit(1);
});
