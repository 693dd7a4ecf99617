// RabbitMQ's six tutorials in the shape in which people copy them, through
// amqplib.
//
// Usage: node tutorials.js URL
//
// Prints a line for each tutorial that works and ends with exit code 1 at the
// first that does not. Names have the process id in front, so that runs do not
// meet.
'use strict';

const assert = require('node:assert/strict');
const { randomUUID } = require('node:crypto');
const amqp = require('amqplib');

const url = process.argv[2];
const run = `tutorialjs.${process.pid}.`;
const ok = (what) => console.log('ok', what);
const connect = () => amqp.connect(url);

// take resolves with the next count messages of a queue.
function take(channel, queue, count, options = { noAck: true }) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`only ${seen.length} of ${count} messages in ${queue}`)), 30000);
    const seen = [];
    if (count === 0) {
      clearTimeout(timer);
      resolve(seen);
      return;
    }
    channel.consume(queue, (msg) => {
      if (msg === null) return; // the queue was deleted
      seen.push(msg.content.toString());
      if (seen.length === count) {
        clearTimeout(timer);
        resolve(seen);
      }
    }, options).catch(reject);
  });
}

async function helloWorld() {
  const queue = `${run}hello`;
  let connection = await connect();
  let channel = await connection.createChannel();
  await channel.assertQueue(queue, { durable: false });
  channel.sendToQueue(queue, Buffer.from('Hello World!'));
  await channel.close();
  await connection.close();

  connection = await connect(); // the queue outlives its connection
  channel = await connection.createChannel();
  await channel.assertQueue(queue, { durable: false });
  assert.deepEqual(await take(channel, queue, 1), ['Hello World!']);
  await channel.deleteQueue(queue);
  await connection.close();
  ok('1 hello world');
}

async function workQueues() {
  const queue = `${run}task_queue`;
  const taken = [[], []];
  const workers = [];
  for (const n of [0, 1]) {
    const connection = await connect();
    const channel = await connection.createChannel();
    workers.push(connection);
    await channel.assertQueue(queue, { durable: true });
    await channel.prefetch(1);
    await channel.consume(queue, (msg) => {
      if (msg === null) return; // the queue is deleted at the end
      taken[n].push([msg.content.toString(), msg.fields.redelivered]);
      if (n === 1) channel.ack(msg); // the first worker dies before it acknowledges
    }, { noAck: false });
  }
  const connection = await connect();
  const channel = await connection.createChannel();
  await channel.assertQueue(queue, { durable: true });
  for (let i = 0; i < 6; i++) channel.sendToQueue(queue, Buffer.from(`task ${i}`), { persistent: true });
  await until(() => taken[0].length === 1 && taken[1].length === 5, 'six tasks');
  await workers[0].close();
  await until(() => taken[1].length === 6, 'the task of the first worker');
  assert.deepEqual(taken[1][5], [taken[0][0][0], true]);
  await channel.deleteQueue(queue);
  await workers[1].close();
  await connection.close();
  ok('2 work queues');
}

async function until(condition, what) {
  for (let i = 0; !condition(); i++) {
    if (i > 1500) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// routed: consumers have their keys, messages a key and who gets it.
async function routed(title, label, kind, consumers, messages) {
  const exchange = run + label;
  const ends = [];
  for (const keys of consumers) {
    const connection = await connect();
    const channel = await connection.createChannel();
    await channel.assertExchange(exchange, kind, { durable: false });
    const { queue } = await channel.assertQueue('', { exclusive: true });
    assert.match(queue, /^amq\.gen-/);
    for (const key of keys) await channel.bindQueue(queue, exchange, key);
    ends.push({ connection, channel, queue });
  }
  const connection = await connect();
  const channel = await connection.createChannel();
  await channel.assertExchange(exchange, kind, { durable: false });
  for (const [key] of messages) channel.publish(exchange, key, Buffer.from(`message ${key}`));
  for (const [n, end] of ends.entries()) {
    const want = messages.filter(([, who]) => who.includes(n)).map(([key]) => `message ${key}`);
    assert.deepEqual(await take(end.channel, end.queue, want.length), want, title);
    await end.connection.close();
  }
  await channel.deleteExchange(exchange);
  await connection.close();
  ok(title);
}

const fibonacci = (n) => (n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2));

async function rpc() {
  const queue = `${run}rpc_queue`;
  const connection = await connect();
  const channel = await connection.createChannel();
  await channel.assertQueue(queue, { durable: false });
  await channel.prefetch(1);
  await channel.consume(queue, (msg) => {
    if (msg === null) return;
    const n = parseInt(msg.content.toString(), 10);
    channel.sendToQueue(msg.properties.replyTo, Buffer.from(fibonacci(n).toString()), { correlationId: msg.properties.correlationId });
    channel.ack(msg);
  });
  for (const direct of [false, true]) {
    const client = await connect();
    const ch = await client.createChannel();
    const replyTo = direct ? 'amq.rabbitmq.reply-to' : (await ch.assertQueue('', { exclusive: true })).queue;
    const waiting = new Map();
    await ch.consume(replyTo, (msg) => {
      waiting.get(msg.properties.correlationId)?.(Number(msg.content.toString()));
    }, { noAck: true });
    const call = (n) => new Promise((resolve) => {
      const correlationId = randomUUID();
      waiting.set(correlationId, resolve);
      ch.sendToQueue(queue, Buffer.from(n.toString()), { correlationId, replyTo });
    });
    assert.deepEqual(await Promise.all([1, 8, 15].map(call)), [1, 21, 610]);
    await client.close();
  }
  await channel.deleteQueue(queue);
  await connection.close();
  ok('6 RPC, with a queue of its own and with direct reply-to');
}

async function main() {
  await helloWorld();
  await workQueues();
  await routed('3 publish/subscribe', 'logs', 'fanout', [[''], ['']], [['', [0, 1]], ['ignored', [0, 1]]]);
  await routed('4 routing', 'direct_logs', 'direct', [['error'], ['info', 'warning', 'error']],
    [['info', [1]], ['error', [0, 1]], ['warning', [1]], ['debug', []]]);
  await routed('5 topics', 'topic_logs', 'topic', [['#'], ['kern.*'], ['*.critical', 'kern.*']],
    [['kern.critical', [0, 1, 2]], ['app.info', [0]], ['app.critical', [0, 2]], ['kern.disk.full', [0]]]);
  await rpc();
  console.log('done');
}

setTimeout(() => {
  console.log('not ok', 'out of time');
  process.exit(1);
}, 100000).unref();

main().then(() => process.exit(0), (error) => {
  console.log('not ok', error.stack);
  process.exit(1);
});
