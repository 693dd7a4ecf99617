// Checks an AMQP broker through librabbitmq, as an application would use it.
//
// Usage: check URL [URL-AFTER]
//
// Prints a line for each promise that holds and ends with exit code 1 at the
// first that does not. With a second URL it then waits for a line on standard
// input (the caller kills the first node) and goes on over there.

#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

typedef amqp_connection_state_t conn_t;

static void ok(const char *what) { printf("ok %s\n", what); fflush(stdout); }

static void expect(int condition, const char *what, const char *seen) {
  if (condition) return;
  printf("not ok %s: %s\n", what, seen ? seen : "");
  exit(1);
}

// reply describes the last answer of the broker: "" when all is well.
static const char *reply(amqp_rpc_reply_t r) {
  static char text[512];
  text[0] = 0;
  if (r.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) {
    snprintf(text, sizeof text, "%s", amqp_error_string2(r.library_error));
  } else if (r.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION) {
    if (r.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
      amqp_connection_close_t *m = r.reply.decoded;
      snprintf(text, sizeof text, "%d %.*s", m->reply_code, (int)m->reply_text.len, (char *)m->reply_text.bytes);
    } else if (r.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
      amqp_channel_close_t *m = r.reply.decoded;
      snprintf(text, sizeof text, "%d %.*s", m->reply_code, (int)m->reply_text.len, (char *)m->reply_text.bytes);
    }
  }
  return text;
}

static void fine(conn_t c, const char *what) {
  const char *text = reply(amqp_get_rpc_reply(c));
  expect(*text == 0, what, text);
}

static amqp_bytes_t str(const char *s) { return amqp_cstring_bytes(s); }

static amqp_bytes_t name(const char *label) {
  static char texts[8][64];
  static int next;
  char *text = texts[next++ % 8];
  snprintf(text, sizeof texts[0], "librabbitmq.%d.%s", getpid(), label);
  return str(text);
}

static int same(amqp_bytes_t a, const char *b) { return a.len == strlen(b) && memcmp(a.bytes, b, a.len) == 0; }

// dial returns a connection that passed the login, or NULL and the refusal.
static conn_t dial(const char *url, const char *password, const char *vhost, const char **why) {
  static char copy[256];
  struct amqp_connection_info info;
  snprintf(copy, sizeof copy, "%s", url);
  expect(amqp_parse_url(copy, &info) == AMQP_STATUS_OK, "URL", url);
  conn_t c = amqp_new_connection();
  amqp_socket_t *socket = amqp_tcp_socket_new(c);
  struct timeval limit = {20, 0};
  expect(socket && amqp_socket_open_noblock(socket, info.host, info.port, &limit) == AMQP_STATUS_OK, "socket", url);
  amqp_set_rpc_timeout(c, &limit);
  *why = reply(amqp_login(c, vhost, 0, 131072, 20, AMQP_SASL_METHOD_PLAIN, "guest", password));
  if (**why) {
    amqp_destroy_connection(c);
    return NULL;
  }
  return c;
}

static conn_t open_at(const char *url) {
  const char *why;
  conn_t c = dial(url, "guest", "/", &why);
  expect(c != NULL, "login", why);
  for (int channel = 1; channel <= 2; channel++) {
    amqp_channel_open(c, channel);
    fine(c, "channel.open");
  }
  return c;
}

static int declare(conn_t c, int channel, amqp_bytes_t q, int passive, amqp_table_t arguments) {
  amqp_queue_declare_ok_t *r = amqp_queue_declare(c, channel, q, passive, 1, 0, 0, arguments);
  return r ? (int)r->message_count : -1;
}

// publish sends a persistent message and returns 1 when it is acked, 0 when nacked.
static int publish(conn_t c, amqp_bytes_t q, const char *body) {
  amqp_basic_properties_t props = {0};
  props._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG;
  props.delivery_mode = 2;
  props.message_id = str("id-1");
  expect(amqp_basic_publish(c, 1, amqp_empty_bytes, q, 0, 0, &props, str(body)) == AMQP_STATUS_OK, "publish", body);
  amqp_frame_t frame;
  struct timeval limit = {20, 0};
  do {
    int status = amqp_simple_wait_frame_noblock(c, &frame, &limit);
    expect(status == AMQP_STATUS_OK, "a confirm", amqp_error_string2(status));
  } while (frame.frame_type != AMQP_FRAME_METHOD || frame.channel != 1);
  if (frame.payload.method.id == AMQP_BASIC_ACK_METHOD) return 1;
  expect(frame.payload.method.id == AMQP_BASIC_NACK_METHOD, "ack or nack", amqp_method_name(frame.payload.method.id));
  return 0;
}

static amqp_envelope_t next(conn_t c, const char *what) {
  amqp_envelope_t e;
  struct timeval limit = {20, 0};
  amqp_maybe_release_buffers(c);
  const char *text = reply(amqp_consume_message(c, &e, &limit, 0));
  expect(*text == 0, what, text);
  return e;
}

static amqp_table_t one(amqp_table_entry_t *entry) {
  amqp_table_t t = {1, entry};
  return t;
}

static amqp_table_entry_t text_field(const char *key, amqp_bytes_t value) {
  amqp_table_entry_t e = {str(key), {AMQP_FIELD_KIND_UTF8, {0}}};
  e.value.value.bytes = value;
  return e;
}

static amqp_table_entry_t number_field(const char *key, int value) {
  amqp_table_entry_t e = {str(key), {AMQP_FIELD_KIND_I32, {0}}};
  e.value.value.i32 = value;
  return e;
}

static void publishing(conn_t c) {
  char body[16];
  amqp_bytes_t q = name("publish"), full = name("full");
  amqp_confirm_select(c, 1);
  fine(c, "confirm.select");
  declare(c, 1, q, 0, amqp_empty_table);
  fine(c, "queue.declare");
  for (int i = 0; i < 50; i++) {
    snprintf(body, sizeof body, "m%d", i);
    expect(publish(c, q, body), "a confirm", body);
  }
  expect(declare(c, 1, q, 1, amqp_empty_table) == 50, "50 messages are there", NULL);
  ok("confirms");

  amqp_table_entry_t limits[] = {number_field("x-max-length", 1), text_field("x-overflow", str("reject-publish"))};
  amqp_table_t arguments = {2, limits};
  declare(c, 1, full, 0, arguments);
  fine(c, "queue.declare");
  expect(publish(c, full, "1") && !publish(c, full, "2"), "a full queue refuses", NULL);
  ok("refusals of a full queue");

  amqp_basic_qos(c, 2, 0, 10, 0);
  fine(c, "basic.qos");
  amqp_basic_consume(c, 2, q, str("c"), 0, 0, 0, amqp_empty_table);
  fine(c, "basic.consume");
  for (int i = 0; i < 50; i++) {
    amqp_envelope_t e = next(c, "a message");
    snprintf(body, sizeof body, "m%d", i);
    expect(same(e.message.body, body) && !e.redelivered, "messages come in order", body);
    if (i == 9) {
      expect(declare(c, 1, q, 1, amqp_empty_table) == 40, "the prefetch holds back 40", NULL);
    }
    if (i % 10 == 9) amqp_basic_ack(c, 2, e.delivery_tag, 1);
    amqp_destroy_envelope(&e);
  }
  amqp_basic_cancel(c, 2, str("c"));
  ok("consuming with prefetch");
  amqp_queue_delete(c, 1, q, 0, 0);
  amqp_queue_delete(c, 1, full, 0, 0);
  fine(c, "queue.delete");
}

// field returns the value of a key, or NULL.
static amqp_field_value_t *field(amqp_table_t *t, const char *key) {
  for (int i = 0; i < t->num_entries; i++) {
    if (same(t->entries[i].key, key)) return &t->entries[i].value;
  }
  return NULL;
}

static void dead_lettering(conn_t c) {
  amqp_bytes_t dlx = name("dlx"), q = name("source"), dead = name("dead");
  amqp_exchange_declare(c, 1, dlx, str("fanout"), 0, 1, 0, 0, amqp_empty_table);
  declare(c, 1, dead, 0, amqp_empty_table);
  amqp_queue_bind(c, 1, dead, dlx, amqp_empty_bytes, amqp_empty_table);
  amqp_table_entry_t argument = text_field("x-dead-letter-exchange", dlx);
  declare(c, 1, q, 0, one(&argument));
  fine(c, "queue.declare");
  publish(c, q, "bad");
  amqp_basic_consume(c, 2, q, str("source"), 0, 0, 0, amqp_empty_table);
  amqp_envelope_t e = next(c, "the message");
  amqp_basic_reject(c, 2, e.delivery_tag, 0);
  amqp_destroy_envelope(&e);
  amqp_basic_consume(c, 2, dead, str("dead"), 0, 0, 0, amqp_empty_table);
  e = next(c, "the dead letter");
  expect(same(e.message.body, "bad") && same(e.message.properties.message_id, "id-1"), "the dead letter is the message", NULL);
  amqp_field_value_t *deaths = field(&e.message.properties.headers, "x-death");
  expect(deaths && deaths->kind == AMQP_FIELD_KIND_ARRAY && deaths->value.array.num_entries == 1, "x-death is an array of one", NULL);
  amqp_table_t *death = &deaths->value.array.entries[0].value.table;
  amqp_field_value_t *count = field(death, "count"), *reason = field(death, "reason"), *when = field(death, "time"), *keys = field(death, "routing-keys");
  expect(count && count->kind == AMQP_FIELD_KIND_I64 && count->value.i64 == 1, "count", NULL);
  expect(reason && reason->kind == AMQP_FIELD_KIND_UTF8 && same(reason->value.bytes, "rejected"), "reason", NULL);
  expect(when && when->kind == AMQP_FIELD_KIND_TIMESTAMP, "time", NULL);
  expect(keys && keys->kind == AMQP_FIELD_KIND_ARRAY && keys->value.array.num_entries == 1, "routing-keys", NULL);
  amqp_basic_ack(c, 2, e.delivery_tag, 0);
  amqp_destroy_envelope(&e);
  amqp_basic_cancel(c, 2, str("source"));
  amqp_basic_cancel(c, 2, str("dead"));
  amqp_queue_delete(c, 1, q, 0, 0);
  amqp_queue_delete(c, 1, dead, 0, 0);
  amqp_exchange_delete(c, 1, dlx, 0);
  fine(c, "exchange.delete");
  ok("dead letters and x-death");
}

// refused ends a connection of its own: that is what the answer may do.
static void refused(const char *url, const char *want, void (*use)(conn_t)) {
  conn_t c = open_at(url);
  use(c);
  const char *text = reply(amqp_get_rpc_reply(c));
  expect(strncmp(text, want, strlen(want)) == 0, want, text);
  amqp_destroy_connection(c);
}

static void no_queue(conn_t c) { declare(c, 1, name("none"), 1, amqp_empty_table); }
static void no_right(conn_t c) { amqp_exchange_delete(c, 1, str("amq.direct"), 0); }
static void locked(conn_t c) { declare(c, 1, name("own"), 1, amqp_empty_table); }
static void twice(conn_t c) {
  for (int i = 0; i < 2; i++) amqp_basic_consume(c, 1, name("args"), str("same"), 0, 0, 0, amqp_empty_table);
}
static void unequal(conn_t c) {
  amqp_table_entry_t argument = number_field("x-max-length", 11);
  declare(c, 1, name("args"), 0, one(&argument));
}

static void errors(conn_t c, const char *url) {
  refused(url, "404 NOT_FOUND - no queue '", no_queue);
  refused(url, "403 ACCESS_REFUSED - ", no_right);
  amqp_table_entry_t argument = number_field("x-max-length", 10);
  declare(c, 1, name("args"), 0, one(&argument));
  amqp_queue_declare(c, 1, name("own"), 0, 0, 1, 0, amqp_empty_table);
  fine(c, "queue.declare");
  refused(url, "406 PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '", unequal);
  refused(url, "405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '", locked);
  refused(url, "530 NOT_ALLOWED - attempt to reuse consumer tag 'same'", twice);
  amqp_queue_delete(c, 1, name("args"), 0, 0);
  ok("channel errors");

  const char *why;
  dial(url, "wrong", "/", &why);
  expect(strstr(why, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN") != NULL, "403", why);
  dial(url, "guest", "nowhere", &why);
  expect(strstr(why, "530 NOT_ALLOWED - ") != NULL && strstr(why, "vhost nowhere not found") != NULL, "530", why);
  ok("connection errors");
}

static void survive(conn_t c, const char *url, const char *after) {
  char body[16];
  int seen[20] = {0};
  amqp_bytes_t q = name("survive");
  declare(c, 1, q, 0, amqp_empty_table);
  for (int i = 0; i < 20; i++) {
    snprintf(body, sizeof body, "%d", i);
    expect(publish(c, q, body), "a confirm", body);
  }
  amqp_basic_qos(c, 2, 0, 5, 0);
  amqp_basic_consume(c, 2, q, str("first"), 0, 0, 0, amqp_empty_table);
  amqp_envelope_t e = next(c, "a message to hold");
  amqp_destroy_envelope(&e);
  printf("kill %s\n", url);
  fflush(stdout);
  expect(fgets(body, sizeof body, stdin) != NULL, "an answer", NULL);
  amqp_queue_declare(c, 1, q, 1, 1, 0, 0, amqp_empty_table);
  expect(amqp_get_rpc_reply(c).reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION, "the connection is gone", NULL);
  amqp_destroy_connection(c);

  c = open_at(after);
  amqp_basic_consume(c, 2, q, str("second"), 0, 0, 0, amqp_empty_table);
  fine(c, "basic.consume");
  for (int left = 20; left > 0;) {
    e = next(c, "a message that is left");
    snprintf(body, sizeof body, "%.*s", (int)e.message.body.len, (char *)e.message.body.bytes);
    int i = atoi(body);
    expect(i >= 0 && i < 20 && same(e.message.body, body), "a message of ours", body);
    expect(i > 4 || e.redelivered, "held messages are marked", body);
    if (!seen[i]++) left--;
    amqp_basic_ack(c, 2, e.delivery_tag, 0);
    amqp_destroy_envelope(&e);
  }
  amqp_basic_cancel(c, 2, str("second"));
  amqp_queue_delete(c, 1, q, 0, 0);
  fine(c, "queue.delete");
  amqp_destroy_connection(c);
  ok("the death of a node");
}

int main(int argc, char **argv) {
  expect(argc > 1, "URL", NULL);
  conn_t c = open_at(argv[1]);
  publishing(c);
  dead_lettering(c);
  errors(c, argv[1]);
  if (argc > 2) survive(c, argv[1], argv[2]);
  printf("done\n");
  return 0;
}
