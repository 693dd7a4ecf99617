// Checks AMQP over TLS through amqplib.
//
// Usage: node check-tls.js HOST PORT CA-FILE [CERT-FILE KEY-FILE]
//
// With a certificate it logs in by EXTERNAL, else as guest. Prints "done" at the end.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const amqp = require('amqplib');

async function main([host, port, ca, cert, key]) {
  const options = { ca: [fs.readFileSync(ca)], servername: '' };
  if (cert) {
    options.cert = fs.readFileSync(cert);
    options.key = fs.readFileSync(key);
    options.credentials = amqp.credentials.external();
  }
  const connection = await amqp.connect(`amqps://${host}:${port}`, options);
  const channel = await connection.createConfirmChannel();
  const queue = `amqplib.tls.${process.pid}`;
  await channel.assertQueue(queue, { durable: true });
  const body = Buffer.alloc(300000, 'warren');
  channel.sendToQueue(queue, body, { persistent: true });
  await channel.waitForConfirms();
  const message = await channel.get(queue, { noAck: true });
  assert.ok(message && message.content.equals(body), 'the message came back changed');
  await channel.deleteQueue(queue);
  await connection.close();
  console.log('done');
}

main(process.argv.slice(2)).catch((err) => {
  console.error(err);
  process.exit(1);
});
