<?php
// Checks an AMQP broker through php-amqplib, as an application would use it.
//
// Usage: php check.php URL [URL-AFTER]
//
// Prints a line for each promise that holds and ends with exit code 1 at the
// first that does not. With a second URL it then waits for a line on standard
// input (the caller kills the first node) and goes on over there: the library
// has no recovery of its own.

declare(strict_types=1);

require_once 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AbstractConnection;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPExceptionInterface;
use PhpAmqpLib\Exception\AMQPProtocolException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

error_reporting(E_ALL & ~E_DEPRECATED);

function ok(string $what): void
{
    echo "ok $what\n";
}

function expect(bool $condition, string $what, mixed ...$seen): void
{
    if (!$condition) {
        echo "not ok $what ", json_encode($seen), "\n";
        exit(1);
    }
}

function name(string $label): string
{
    return 'php.' . getmypid() . '.' . $label;
}

function connect(string $url, string $password = 'guest', string $vhost = '/'): AbstractConnection
{
    $u = parse_url($url);
    return new AMQPStreamConnection($u['host'], $u['port'], 'guest', $password, $vhost, false, 'PLAIN', null, 'en_US', 15.0, 60.0, null, false, 20);
}

/** @param array<string, mixed> $properties */
function message(string $body, array $properties = []): AMQPMessage
{
    return new AMQPMessage($body, $properties + ['delivery_mode' => AMQPMessage::DELIVERY_MODE_PERSISTENT]);
}

function declareQueue(AMQPChannel $channel, string $queue, array $arguments = []): void
{
    $channel->queue_declare($queue, false, true, false, false, false, new AMQPTable($arguments));
}

function get(AMQPChannel $channel, string $queue): AMQPMessage
{
    for ($i = 0; $i < 500; $i++) {
        $m = $channel->basic_get($queue);
        if ($m !== null) {
            return $m;
        }
        usleep(20000);
    }
    expect(false, "a message in $queue");
}

function publishing(AbstractConnection $connection): void
{
    $channel = $connection->channel();
    $acked = 0;
    $nacked = 0;
    $channel->set_ack_handler(function () use (&$acked): void { $acked++; });
    $channel->set_nack_handler(function () use (&$nacked): void { $nacked++; });
    $channel->confirm_select();
    $q = name('publish');
    declareQueue($channel, $q);
    for ($i = 0; $i < 50; $i++) {
        $channel->basic_publish(message("m$i"), '', $q);
    }
    $channel->wait_for_pending_acks(20);
    expect($acked === 50 && $nacked === 0, '50 confirms', $acked, $nacked);
    [, $count] = $channel->queue_declare($q, true);
    expect($count === 50, '50 messages are there', $count);
    $returned = null;
    $channel->set_return_listener(function ($code, $text, $exchange, $key, $m) use (&$returned): void { $returned = [$code, $text, $m->getBody()]; });
    $channel->basic_publish(message('back'), '', name('none'), true);
    $channel->wait_for_pending_acks_returns(20);
    expect($returned === [312, 'NO_ROUTE', 'back'], 'an unroutable message comes back', $returned);
    ok('confirms and returns');

    $full = name('full');
    declareQueue($channel, $full, ['x-max-length' => 1, 'x-overflow' => 'reject-publish']);
    foreach (['1', '2'] as $body) {
        $channel->basic_publish(message($body), '', $full);
        $channel->wait_for_pending_acks(20);
    }
    expect($acked === 52 && $nacked === 1, 'a full queue refuses', $acked, $nacked);
    ok('refusals of a full queue');

    $consuming = $connection->channel();
    $consuming->basic_qos(0, 10, false);
    $seen = [];
    $tag = $consuming->basic_consume($q, '', false, false, false, false, function (AMQPMessage $m) use (&$seen, $channel, $q): void {
        $seen[] = $m->getBody();
        if (count($seen) === 10) {
            [, $waiting] = $channel->queue_declare($q, true);
            expect($waiting === 40, 'the prefetch holds back 40', $waiting);
        }
        if (count($seen) % 10 === 0) {
            $m->ack(true);
        }
    });
    while (count($seen) < 50) {
        $consuming->wait(null, false, 20);
    }
    expect($seen === array_map(fn ($i) => "m$i", range(0, 49)), 'messages come in order', $seen);
    $consuming->basic_cancel($tag);
    ok('consuming with prefetch');
    $channel->queue_delete($q);
    $channel->queue_delete($full);
    $consuming->close();
    $channel->close();
}

function deadLettering(AbstractConnection $connection): void
{
    $channel = $connection->channel();
    [$dlx, $q, $dead] = array_map('name', ['dlx', 'source', 'dead']);
    $channel->exchange_declare($dlx, 'fanout', false, true, false);
    declareQueue($channel, $dead);
    declareQueue($channel, $q, ['x-dead-letter-exchange' => $dlx]);
    $channel->queue_bind($dead, $dlx);
    $channel->basic_publish(message('bad', ['message_id' => '1', 'application_headers' => new AMQPTable(['mine' => 'yes'])]), '', $q);
    get($channel, $q)->reject(false);
    $letter = get($channel, $dead);
    $headers = $letter->get('application_headers')->getNativeData();
    $death = $headers['x-death'][0];
    expect(abs($death['time']->getTimestamp() - time()) < 60, 'time of the death');
    unset($death['time']);
    ksort($death);
    expect($death == ['count' => 1, 'exchange' => '', 'queue' => $q, 'reason' => 'rejected', 'routing-keys' => [$q]], 'x-death', $death);
    expect([$letter->getBody(), $letter->get('message_id'), $headers['mine']] === ['bad', '1', 'yes'], 'the dead letter is the message');
    $letter->ack();
    $channel->queue_delete($q);
    $channel->queue_delete($dead);
    $channel->exchange_delete($dlx);
    $channel->close();
    ok('dead letters and x-death');
}

function refused(AbstractConnection $connection, int $code, string $text, callable $use): void
{
    $channel = $connection->channel();
    try {
        $use($channel);
        $channel->wait(null, false, 10);
    } catch (AMQPProtocolException $e) {
        expect($e->getCode() === $code && str_contains($e->getMessage(), $text), "$code $text", $e->getCode(), $e->getMessage());
        return;
    }
    expect(false, "$code $text");
}

function errors(AbstractConnection $connection, string $url): void
{
    [$none, $q, $own] = array_map('name', ['none', 'args', 'own']);
    refused($connection, 404, "NOT_FOUND - no queue '$none' in vhost '/'", fn ($c) => $c->queue_declare($none, true));
    refused($connection, 404, "NOT_FOUND - no exchange '$none' in vhost '/'", fn ($c) => $c->basic_publish(message('m'), $none));
    refused($connection, 403, 'ACCESS_REFUSED', fn ($c) => $c->exchange_delete('amq.direct'));
    refused($connection, 406, 'PRECONDITION_FAILED - unknown delivery tag 99', fn ($c) => $c->basic_ack(99));
    $channel = $connection->channel();
    declareQueue($channel, $q, ['x-max-length' => 10]);
    refused($connection, 406, "inequivalent arg 'x-max-length'", fn ($c) => declareQueue($c, $q, ['x-max-length' => 11]));
    $channel->queue_declare($own, false, false, true);
    $other = connect($url);
    refused($other, 405, 'RESOURCE_LOCKED', fn ($c) => $c->queue_declare($own, true));
    $other->close();
    $channel->queue_delete($q);
    $channel->close();
    ok('channel errors');

    foreach ([['wrong', '/', 403, 'ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN'], ['guest', 'nowhere', 530, 'vhost nowhere not found']] as [$password, $vhost, $code, $text]) {
        try {
            connect($url, $password, $vhost);
            expect(false, "$code at connection");
        } catch (AMQPExceptionInterface $e) {
            expect($e->getCode() === $code && str_contains($e->getMessage(), $text), "$code at connection", $e->getCode(), $e->getMessage());
        }
    }
    ok('connection errors');
}

function survive(AbstractConnection $connection, string $url, string $after): void
{
    $channel = $connection->channel();
    $channel->confirm_select();
    $q = name('survive');
    declareQueue($channel, $q);
    for ($i = 0; $i < 20; $i++) {
        $channel->basic_publish(message((string) $i), '', $q);
    }
    $channel->wait_for_pending_acks(20);
    for ($i = 0; $i < 5; $i++) {
        get($channel, $q);
    }
    echo "kill $url\n";
    fgets(STDIN);
    try {
        $channel->basic_publish(message('lost'), '', $q);
        $channel->wait_for_pending_acks(20);
        expect(false, 'the connection is gone');
    } catch (AMQPExceptionInterface) {
    }
    $connection = connect($after);
    $channel = $connection->channel();
    $seen = [];
    $tag = $channel->basic_consume($q, '', false, false, false, false, function (AMQPMessage $m) use (&$seen): void {
        expect((int) $m->getBody() >= 5 || $m->isRedelivered(), 'held messages are marked', $m->getBody());
        $seen[$m->getBody()] = true;
        $m->ack();
    });
    while (count($seen) < 20) {
        $channel->wait(null, false, 30);
    }
    $channel->basic_cancel($tag);
    $channel->queue_delete($q);
    $connection->close();
    ok('the death of a node');
}

$connection = connect($argv[1]);
publishing($connection);
deadLettering($connection);
errors($connection, $argv[1]);
if (isset($argv[2])) {
    survive($connection, $argv[1], $argv[2]);
} else {
    $connection->close();
}
echo "done\n";
