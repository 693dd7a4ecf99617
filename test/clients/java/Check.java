// Checks an AMQP broker through RabbitMQ's Java client, as an application would use it.
//
// Usage: java -cp ... Check.java URL [URL-AFTER]
//
// Prints a line for each promise that holds and ends with exit code 1 at the
// first that does not. With a second URL it waits for a line on standard input
// (the caller kills the first node) while the client's own recovery of the connection
// and its topology goes over to the other.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Address;
import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcServer;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.net.URI;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class Check {
    static final String RUN = "java." + ProcessHandle.current().pid();
    static final AMQP.BasicProperties PERSISTENT = MessageProperties.PERSISTENT_BASIC;

    public static void main(String[] args) throws Exception {
        try (Connection connection = factory(args[0]).newConnection()) {
            publishing(connection);
            deadLettering(connection);
            transactions(connection);
            calls(connection);
            errors(connection, args[0]);
        }
        if (args.length > 1) {
            survive(args[0], args[1]);
        }
        System.out.println("done");
    }

    static void ok(String what) {
        System.out.println("ok " + what);
    }

    static void expect(boolean condition, String what, Object... seen) {
        if (condition) {
            return;
        }
        System.out.println("not ok " + what + " " + List.of(seen));
        System.exit(1);
    }

    static String name(String label) {
        return RUN + "." + label;
    }

    static ConnectionFactory factory(String url) throws Exception {
        ConnectionFactory f = new ConnectionFactory();
        f.setUri(url);
        f.setVirtualHost("/");
        f.setAutomaticRecoveryEnabled(false);
        f.setConnectionTimeout(20_000);
        f.setHandshakeTimeout(20_000);
        return f;
    }

    /** What a consumer has been given. */
    record Taken(long tag, boolean redelivered, String body) {}

    /** Consumes from a queue, and puts what arrives into the one that is returned. */
    static BlockingQueue<Taken> consume(Channel channel, String queue) throws IOException {
        BlockingQueue<Taken> taken = new LinkedBlockingQueue<>();
        channel.basicConsume(queue, false, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
                taken.add(new Taken(envelope.getDeliveryTag(), envelope.isRedeliver(), new String(body)));
            }
        });
        return taken;
    }

    static <T> T next(BlockingQueue<T> queue, String what) throws InterruptedException {
        T got = queue.poll(30, TimeUnit.SECONDS);
        expect(got != null, what + " within half a minute");
        return got;
    }

    static GetResponse get(Channel channel, String queue) throws Exception {
        for (int i = 0; i < 500; i++) {
            GetResponse got = channel.basicGet(queue, false);
            if (got != null) {
                return got;
            }
            Thread.sleep(20);
        }
        expect(false, "a message in " + queue);
        return null;
    }

    static void publishing(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        String q = channel.queueDeclare(name("publish"), true, false, false, null).getQueue();
        for (int i = 0; i < 50; i++) {
            channel.basicPublish("", q, PERSISTENT, ("m" + i).getBytes());
        }
        expect(channel.waitForConfirms(20_000), "50 confirms");
        expect(channel.messageCount(q) == 50, "50 messages are there", channel.messageCount(q));
        BlockingQueue<String> returned = new LinkedBlockingQueue<>();
        channel.addReturnListener((code, text, exchange, key, properties, body) -> returned.add(code + " " + text + " " + new String(body)));
        channel.basicPublish("", name("none"), true, PERSISTENT, "back".getBytes());
        String back = next(returned, "an unroutable message");
        expect(back.equals("312 NO_ROUTE back"), "an unroutable message comes back", back);
        ok("confirms and returns");

        String full = name("full");
        channel.queueDeclare(full, true, false, false, Map.of("x-max-length", 1, "x-overflow", "reject-publish"));
        channel.basicPublish("", full, PERSISTENT, "1".getBytes());
        expect(channel.waitForConfirms(20_000), "a confirm");
        channel.basicPublish("", full, PERSISTENT, "2".getBytes());
        expect(!channel.waitForConfirms(20_000), "a full queue refuses");
        ok("refusals of a full queue");

        Channel consuming = connection.createChannel();
        consuming.basicQos(10);
        BlockingQueue<Taken> taken = consume(consuming, q);
        for (int i = 0; i < 50; i++) {
            Taken d = next(taken, "message " + i);
            expect(d.body().equals("m" + i), "messages come in order", i, d);
            if (i == 9) {
                expect(channel.messageCount(q) == 40, "the prefetch holds back 40", channel.messageCount(q));
            }
            if (i % 10 == 9) {
                consuming.basicAck(d.tag(), true);
            }
        }
        ok("consuming with prefetch");
        consuming.close();
        channel.queueDelete(q);
        channel.queueDelete(full);
        channel.close();
    }

    static void deadLettering(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String dlx = name("dlx");
        String dead = name("dead");
        String source = name("source");
        channel.exchangeDeclare(dlx, BuiltinExchangeType.FANOUT, true);
        channel.queueDeclare(dead, true, false, false, null);
        channel.queueBind(dead, dlx, "");
        channel.queueDeclare(source, true, false, false, Map.of("x-queue-type", "quorum", "x-dead-letter-exchange", dlx));
        channel.basicPublish("", source, PERSISTENT.builder().messageId("1").headers(Map.of("mine", "yes")).build(), "bad".getBytes());
        channel.basicReject(get(channel, source).getEnvelope().getDeliveryTag(), false);
        GetResponse letter = get(channel, dead);
        Map<String, Object> headers = letter.getProps().getHeaders();
        Map<?, ?> death = (Map<?, ?>) ((List<?>) headers.get("x-death")).get(0);
        expect(death.get("count").equals(1L), "count", death);
        expect(Math.abs(((Date) death.get("time")).getTime() - System.currentTimeMillis()) < 60_000, "time of the death", death);
        expect(death.get("reason").toString().equals("rejected") && death.get("queue").toString().equals(source), "reason and queue", death);
        expect(death.get("routing-keys").toString().equals("[" + source + "]"), "routing keys", death);
        expect(headers.get("mine").toString().equals("yes") && letter.getProps().getMessageId().equals("1")
            && new String(letter.getBody()).equals("bad"), "the dead letter is the message", letter.getProps());
        channel.basicAck(letter.getEnvelope().getDeliveryTag(), false);

        String retry = name("retry"); // a message that waits in a queue without consumers, and comes back
        channel.queueDeclare(retry, true, false, false, Map.of("x-message-ttl", 100, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", dead));
        channel.basicPublish("", retry, PERSISTENT, "again".getBytes());
        letter = get(channel, dead);
        expect(letter.getProps().getHeaders().get("x-first-death-reason").toString().equals("expired"), "it has expired", letter.getProps());
        ok("dead letters and x-death");
        for (String q : List.of(dead, source, retry)) {
            channel.queueDelete(q);
        }
        channel.exchangeDelete(dlx);
        channel.close();
    }

    static void transactions(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String q = channel.queueDeclare(name("tx"), true, false, false, null).getQueue();
        channel.txSelect();
        channel.basicPublish("", q, PERSISTENT, "undone".getBytes());
        channel.txRollback();
        channel.basicPublish("", q, PERSISTENT, "kept".getBytes());
        channel.txCommit();
        expect(channel.messageCount(q) == 1 && new String(channel.basicGet(q, true).getBody()).equals("kept"), "what was committed is there");
        channel.queueDelete(q);
        channel.close();
        ok("transactions");
    }

    static void calls(Connection connection) throws Exception {
        Channel serving = connection.createChannel();
        String q = serving.queueDeclare(name("calls"), false, false, true, null).getQueue();
        RpcServer server = new RpcServer(serving, q) {
            @Override
            public byte[] handleCall(Delivery request, AMQP.BasicProperties properties) {
                return new StringBuilder(new String(request.getBody())).reverse().toString().getBytes();
            }
        };
        Thread serves = new Thread(() -> {
            try {
                server.mainloop();
            } catch (IOException e) {
                expect(false, "serving calls", e);
            } catch (ShutdownSignalException e) {
                expect(e.isInitiatedByApplication(), "serving calls", e); // nothing else ends it
            }
        });
        serves.start();
        Channel calling = connection.createChannel();
        RpcClient client = new RpcClient(calling, "", q, 20_000); // by amq.rabbitmq.reply-to
        for (String word : List.of("abc", "warren")) {
            String answer = client.stringCall(word);
            expect(answer.equals(new StringBuilder(word).reverse().toString()), "an answer", answer);
        }
        client.close();
        serving.close();
        serves.join(20_000);
        calling.close();
        ok("calls by direct reply-to");
    }

    interface Use {
        void of(Channel channel) throws IOException;
    }

    /** Expects that a channel is closed for its use, with a code and a text. */
    static void refused(Connection connection, int code, String text, Use use) throws Exception {
        try {
            use.of(connection.createChannel());
            expect(false, text);
        } catch (IOException e) {
            AMQP.Channel.Close close = (AMQP.Channel.Close) ((ShutdownSignalException) e.getCause()).getReason();
            expect(close.getReplyCode() == code && close.getReplyText().startsWith(text), text, close);
        }
    }

    static void errors(Connection connection, String url) throws Exception {
        Channel channel = connection.createChannel();
        String none = name("none");
        refused(connection, 404, "NOT_FOUND - no queue '" + none + "' in vhost '/'", c -> c.queueDeclarePassive(none));
        refused(connection, 404, "NOT_FOUND - no exchange '" + none + "' in vhost '/'", c -> c.exchangeDeclarePassive(none));
        refused(connection, 403, "ACCESS_REFUSED", c -> c.exchangeDelete("amq.direct"));
        String args = name("args");
        channel.queueDeclare(args, true, false, false, Map.of("x-max-length", 10));
        refused(connection, 406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length'",
            c -> c.queueDeclare(args, true, false, false, Map.of("x-max-length", 11)));
        String own = channel.queueDeclare().getQueue();
        try (Connection other = factory(url).newConnection()) {
            refused(other, 405, "RESOURCE_LOCKED", c -> c.queueDeclarePassive(own));
        }
        channel.queueDelete(args);
        channel.close();
        ok("channel errors");

        ConnectionFactory wrong = factory(url);
        wrong.setPassword("wrong");
        try {
            wrong.newConnection();
            expect(false, "403");
        } catch (AuthenticationFailureException e) {
            expect(e.getMessage().contains("ACCESS_REFUSED"), "403", e);
        }
        ConnectionFactory nowhere = factory(url);
        nowhere.setVirtualHost("nowhere");
        try {
            nowhere.newConnection();
            expect(false, "530");
        } catch (IOException e) {
            expect(e.getCause().getMessage().contains("vhost nowhere not found"), "530", e.getCause());
        }
        ok("connection errors");
    }

    static Address address(String url) {
        URI uri = URI.create(url);
        return new Address(uri.getHost(), uri.getPort());
    }

    static void survive(String url, String after) throws Exception {
        ConnectionFactory f = factory(url);
        f.setAutomaticRecoveryEnabled(true);
        f.setTopologyRecoveryEnabled(true);
        f.setNetworkRecoveryInterval(500);
        BlockingQueue<String> recovered = new LinkedBlockingQueue<>();
        boolean[] begun = {false};
        Connection connection = f.newConnection(() -> { // the client tries them in any order
            List<Address> addresses = begun[0] ? List.of(address(url), address(after)) : List.of(address(url));
            begun[0] = true;
            return addresses;
        });
        ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable r) {
                recovered.add("recovered");
            }

            @Override
            public void handleRecoveryStarted(Recoverable r) {}
        });
        // The client declares again and binds again what it has declared and bound, and consumes again.
        Channel channel = connection.createChannel();
        channel.basicQos(5);
        String exchange = name("survive");
        String q = name("survive");
        channel.exchangeDeclare(exchange, BuiltinExchangeType.TOPIC, true);
        channel.queueDeclare(q, true, false, false, Map.of("x-queue-type", "quorum"));
        channel.queueBind(q, exchange, "k.#");
        String named = channel.queueDeclare().getQueue(); // named by the server: it has another name afterwards
        channel.queueBind(named, exchange, "own");
        BlockingQueue<Taken> own = consume(channel, named);
        BlockingQueue<String> taken = new LinkedBlockingQueue<>();
        int[] count = {0};
        channel.basicConsume(q, false, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) throws IOException {
                taken.add(new String(body));
                if (++count[0] > 3) { // the first ones are held
                    getChannel().basicAck(envelope.getDeliveryTag(), false);
                }
            }
        });
        publish(connection, exchange, 0, 20);
        System.out.println("kill " + url);
        System.in.read();
        String said = recovered.poll(60, TimeUnit.SECONDS);
        expect(said != null && connection.getPort() == address(after).getPort(), "the connection leads to the other node", connection.getPort());
        ok("recovery by itself");
        publish(connection, exchange, 20, 40);
        Map<String, Integer> seen = new HashMap<>();
        Channel asking = connection.createChannel();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (seen.size() < 40 || asking.messageCount(q) > 0 || !taken.isEmpty()) {
            expect(System.nanoTime() < end, "all messages are taken", new TreeSet<>(seen.keySet()));
            String body = taken.poll(100, TimeUnit.MILLISECONDS);
            if (body != null) {
                seen.merge(body, 1, Integer::sum);
            }
        }
        Set<String> all = new TreeSet<>();
        for (int i = 0; i < 40; i++) {
            all.add(Integer.toString(i));
        }
        expect(seen.keySet().equals(all), "these messages are taken", seen);
        asking.basicPublish(exchange, "own", PERSISTENT, "to me".getBytes());
        expect(next(own, "a message in the client's own queue").body().equals("to me"), "the client's own queue is there again");
        asking.queueDelete(q);
        asking.exchangeDelete(exchange);
        connection.close();
        ok("the death of a node");
    }

    static void publish(Connection connection, String exchange, int from, int to) throws Exception {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        for (int i = from; i < to; i++) {
            channel.basicPublish(exchange, "k.a", PERSISTENT, Integer.toString(i).getBytes());
        }
        expect(channel.waitForConfirms(30_000), (to - from) + " confirms");
        channel.close();
    }
}
