# Checks an AMQP broker through Bunny, as an application would use it.
#
# Usage: ruby check.rb URL [URL-AFTER]
#
# Prints a line for each promise that holds and ends with exit code 1 at the
# first that does not. With a second URL it waits for a line on standard input
# (the caller kills the first node) while Bunny's own recovery goes over to the
# other.

require "bunny"
require "logger"
require "timeout"

$stdout.sync = true
RUN = "bunny.#{$$}"
QUIET = Logger.new(IO::NULL)

def ok(what) = puts("ok #{what}")

def expect(condition, what, *seen)
  return if condition

  puts "not ok #{what} #{seen.map(&:inspect).join(' ')}"
  exit!(1)
end

def name(label) = "#{RUN}.#{label}"

def connect(url, vhost = "%2F")
  c = Bunny.new(url.chomp("/") + "/" + vhost, logger: QUIET, continuation_timeout: 20_000, automatically_recover: false)
  c.start
  c
end

def get(queue)
  500.times do
    info, properties, body = queue.pop(manual_ack: true)
    return [info, properties, body] if info
    sleep 0.02
  end
  expect(false, "a message in #{queue.name}")
end

def publishing(connection)
  channel = connection.create_channel
  channel.confirm_select
  q = channel.queue(name("publish"), durable: true)
  50.times { |i| q.publish("m#{i}", persistent: true) }
  expect(channel.wait_for_confirms, "50 confirms")
  expect(q.message_count == 50, "50 messages are there", q.message_count)
  returned = Queue.new
  exchange = channel.default_exchange
  exchange.on_return { |info, _, body| returned << [info.reply_code, body] }
  exchange.publish("back", routing_key: name("none"), mandatory: true)
  expect(Timeout.timeout(15) { returned.pop } == [312, "back"], "an unroutable message comes back")
  ok "confirms and returns"

  full = channel.queue(name("full"), durable: true, arguments: { "x-max-length" => 1, "x-overflow" => "reject-publish" })
  full.publish("1", persistent: true)
  expect(channel.wait_for_confirms, "a confirm")
  full.publish("2", persistent: true)
  expect(!channel.wait_for_confirms, "a full queue refuses")
  ok "refusals of a full queue"

  consuming = connection.create_channel
  consuming.prefetch(10)
  seen = Queue.new
  consumer = consuming.queue(q.name, durable: true).subscribe(manual_ack: true) { |info, _, body| seen << [info.delivery_tag, body] }
  bodies = []
  50.times do |i|
    tag, body = Timeout.timeout(20) { seen.pop }
    bodies << body
    if i == 9
      expect(q.message_count == 40, "the prefetch holds back 40", q.message_count)
    end
    consuming.ack(tag, true) if i % 10 == 9
  end
  expect(bodies == (0...50).map { |i| "m#{i}" }, "messages come in order", bodies)
  ok "consuming with prefetch"
  consumer.cancel
  [q, full].each(&:delete)
  [consuming, channel].each(&:close)
end

def dead_lettering(connection)
  channel = connection.create_channel
  dlx = channel.fanout(name("dlx"), durable: true)
  dead = channel.queue(name("dead"), durable: true).bind(dlx)
  q = channel.queue(name("source"), durable: true, arguments: { "x-dead-letter-exchange" => dlx.name })
  q.publish("bad", persistent: true, message_id: "1", headers: { "mine" => "yes" })
  channel.reject(get(q).first.delivery_tag, false)
  _, properties, body = get(dead)
  death = properties.headers["x-death"].first
  expect((death.delete("time") - Time.now).abs < 60, "time of the death")
  expect(death == { "count" => 1, "reason" => "rejected", "queue" => q.name, "exchange" => "", "routing-keys" => [q.name] }, "x-death", death)
  expect([body, properties.message_id, properties.headers["mine"]] == %w[bad 1 yes], "the dead letter is the message")
  [q, dead].each(&:delete)
  dlx.delete
  channel.close
  ok "dead letters and x-death"
end

def refused(connection, error, text, &use)
  channel = connection.create_channel
  use.call(channel)
  expect(false, text)
rescue error => e
  expect(e.message.include?(text), text, e.message)
end

def errors(connection, url)
  refused(connection, Bunny::NotFound, "NOT_FOUND - no queue '#{name('none')}' in vhost '/'") { |c| c.queue_declare(name("none"), passive: true) }
  refused(connection, Bunny::NotFound, "NOT_FOUND - no exchange '#{name('none')}' in vhost '/'") { |c| c.exchange_declare(name("none"), "direct", passive: true) }
  refused(connection, Bunny::AccessRefused, "ACCESS_REFUSED") { |c| c.exchange_delete("amq.direct") }
  channel = connection.create_channel
  q = channel.queue(name("args"), durable: true, arguments: { "x-max-length" => 10 })
  refused(connection, Bunny::PreconditionFailed, "PRECONDITION_FAILED - inequivalent arg 'x-max-length'") do |c|
    c.queue(q.name, durable: true, arguments: { "x-max-length" => 11 })
  end
  own = channel.queue(name("own"), exclusive: true)
  other = connect(url)
  refused(other, Bunny::ResourceLocked, "RESOURCE_LOCKED") { |c| c.queue_declare(own.name, passive: true) }
  other.close
  q.delete
  channel.close
  ok "channel errors"

  begin
    connect(url.sub("guest:guest", "guest:wrong"))
    expect(false, "403")
  rescue Bunny::AuthenticationFailureError => e
    expect(e.message.include?("guest"), "403", e.message)
  end
  begin
    connect(url, "nowhere")
    expect(false, "530")
  rescue Bunny::NotAllowedError, Bunny::TCPConnectionFailed => e
    expect(e.message.include?("vhost nowhere not found"), "530", e)
  end
  ok "connection errors"
end

def survive(url, after)
  addresses = [url, after].map { |u| u[/@([^\/]+)/, 1] }
  recovered = Queue.new
  connection = Bunny.new(addresses: addresses, recovery_completed: -> { recovered << true }, hosts_shuffle_strategy: ->(hosts) { hosts }, logger: QUIET,
                         automatically_recover: true, network_recovery_interval: 0.5, recover_from_connection_close: true, continuation_timeout: 20_000)
  connection.start
  channel = connection.create_channel
  channel.prefetch(5)
  # Bunny binds the queue again and consumes again by itself.
  exchange = channel.topic(name("survive"), durable: true)
  q = channel.queue(name("survive"), durable: true).bind(exchange, routing_key: "k.#")
  taken = Queue.new
  count = 0
  q.subscribe(manual_ack: true) do |info, _, body|
    taken << body
    channel.ack(info.delivery_tag) if (count += 1) > 3 # the first ones are held
  end
  channel.confirm_select
  20.times { |i| exchange.publish(i.to_s, routing_key: "k.a", persistent: true) }
  expect(channel.wait_for_confirms, "20 confirms")
  puts "kill #{url}"
  $stdin.gets
  Timeout.timeout(60) { recovered.pop }
  expect(connection.port == Integer(addresses.last[/\d+$/]), "the connection leads to the other node", connection.port)
  ok "recovery by itself"
  publisher = connection.create_channel
  publisher.confirm_select
  20.upto(39) { |i| publisher.topic(name("survive"), durable: true).publish(i.to_s, routing_key: "k.a", persistent: true) }
  expect(publisher.wait_for_confirms, "20 more confirms")
  seen = []
  Timeout.timeout(60) { seen << taken.pop until seen.uniq.size == 40 && q.message_count.zero? }
  expect(seen.uniq.sort_by(&:to_i) == (0...40).map(&:to_s), "all messages are taken", seen)
  connection.create_channel.tap do |c|
    c.queue_delete(name("survive"))
    c.exchange_delete(name("survive"))
  end
  connection.close
  ok "the death of a node"
end

url, after = ARGV
connection = connect(url)
publishing(connection)
dead_lettering(connection)
errors(connection, url)
connection.close
survive(url, after) if after
puts "done"
