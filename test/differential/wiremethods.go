package main

// Methods of the cases below. Queues and exchanges that they make go with the connection, or are those that there always are.
func declared(name string) []byte { return method(1, 50, 10, uint16(0), name, byte(0b0100), []byte{}) }

func passive(name string) []byte { return method(1, 50, 10, uint16(0), name, byte(0b0001), []byte{}) }

func exchangeOf(name, kind string, bits byte) []byte {
	return method(1, 40, 10, uint16(0), name, kind, bits, []byte{})
}

func consumeOf(queue, tag string, bits byte, table string) []byte {
	return method(1, 60, 20, uint16(0), queue, tag, bits, []byte(table))
}

func getOf(queue string) []byte { return method(1, 60, 70, uint16(0), queue, byte(0)) }

func bindOf(queue, exchange, key string) []byte {
	return method(1, 50, 20, uint16(0), queue, exchange, key, byte(0), []byte{})
}

func unbindOf(queue, exchange, key string) []byte {
	return method(1, 50, 50, uint16(0), queue, exchange, key, []byte{})
}

func exchangeBindOf(destination, source string) []byte {
	return method(1, 40, 30, uint16(0), destination, source, "k", byte(0), []byte{})
}

// publishOf is a message without a body; rest are the header's flags and properties.
func publishOf(exchange, key string, bits byte, rest ...byte) []byte {
	return append(method(1, 60, 40, uint16(0), exchange, key, bits), header(1, 60, 0, 0, rest...)...)
}

func short(flags uint16, text string) []byte {
	return append([]byte{byte(flags >> 8), byte(flags), byte(len(text))}, text...)
}

// headersOf are the flags and the property with a table.
func headersOf(table string) []byte {
	return append([]byte{0x20, 0, 0, 0, 0, byte(len(table))}, table...)
}

const (
	ackTag1     = uint64(1)
	replyTo     = "amq.rabbitmq.reply-to"
	noAckBit    = 0b0010
	mandatory   = 0b0001
	noUTF8      = "a\xff\xfeb"
	correlation = 0x0400
)

var (
	txSelect, txCommit, txRollback = method(1, 90, 10), method(1, 90, 20), method(1, 90, 30)
	confirmSelect                  = method(1, 85, 10, byte(0))
)

// methodCases are methods that are whole and have something wrong in them, or are odd.
var methodCases = []wireCase{
	{name: "a queue name that is no UTF-8", send: send(declared(noUTF8), qos)},
	{name: "an exchange name that is no UTF-8", send: send(exchangeOf(noUTF8, "direct", 0b0001), qos)},
	{name: "an exchange type that is no UTF-8", send: send(exchangeOf("amq.direct", noUTF8, 0), qos)},
	{name: "a routing key that is no UTF-8", send: send(publishOf("", noUTF8, mandatory), qos)},
	{name: "a routing key of a binding that is no UTF-8", send: send(declared("wire"), bindOf("wire", "amq.direct", noUTF8), publishOf("amq.direct", noUTF8, mandatory), getOf("wire"))},
	{name: "a consumer tag that is no UTF-8", send: send(declared("wire"), consumeOf("wire", noUTF8, 0, ""), qos)},
	{name: "a vhost that is no UTF-8", documented: true, early: true, send: send(method(0, 10, 40, noUTF8, "", byte(0)))},
	{name: "a name of an argument that is no UTF-8", send: send(declare([]byte("\x04"+noUTF8+"V")), qos)},
	{name: "a content type that is no UTF-8", send: send(declared("wire"), publishOf("", "wire", 0, short(0x8000, noUTF8)...), getOf("wire"))},
	{name: "a header that is no UTF-8", send: send(declared("wire"), publishOf("", "wire", 0, headersOf("\x04"+noUTF8+"S\x00\x00\x00\x02\xff\xfe")...), getOf("wire"))},
	{name: "line breaks in names", send: send(declared("wi\r\nre"), passive("wire"), passive("wi\nre"))},
	{name: "no name for a passive declaration", send: send(passive(""), qos)},

	{name: "a consumer tag twice", documented: true, send: send(declared("wire"), consumeOf("wire", "t", 0, ""), consumeOf("wire", "t", 0, ""), qos)},
	{name: "a consumer of the last queue where there is none", send: send(consumeOf("", "t", 0, ""), qos)},
	{name: "a consumer of the last queue", documented: true, send: send(declared("wire"), consumeOf("", "t", 0, ""), qos)},
	{name: "a get from the last queue where there is none", send: send(getOf(""), qos)},
	{name: "a purge of the last queue where there is none", send: send(method(1, 50, 30, uint16(0), "", byte(0)), qos)},
	{name: "the deletion of the last queue where there is none", send: send(method(1, 50, 40, uint16(0), "", byte(0)), qos)},
	{name: "a binding of the last queue where there is none", send: send(bindOf("", "amq.direct", "k"), qos)},
	{name: "a binding of the last queue, of its name", send: send(declared("wire"), bindOf("", "amq.direct", ""), publishOf("amq.direct", "wire", mandatory), getOf("wire"))},
	{name: "the last queue is one that was declared passively", send: send(declared("wire"), declared("wire2"), passive("wire"), publishOf("", "wire", 0), getOf(""))},
	{name: "the last queue is gone", send: send(declared("wire"), method(1, 50, 40, uint16(0), "wire", byte(0)), getOf(""))},
	{name: "a priority of a consumer that is text", send: send(declared("wire"), consumeOf("wire", "t", 0, "\x0ax-priorityS\x00\x00\x00\x01h"), qos)},
	{name: "a priority of a consumer that is a long", documented: true, send: send(declared("wire"), consumeOf("wire", "t", 0, "\x0ax-priorityl\x7f\xff\xff\xff\xff\xff\xff\xff"), qos)},
	{name: "a priority of a consumer that is void", send: send(declared("wire"), consumeOf("wire", "t", 0, "\x0ax-priorityV"), qos)},
	{name: "an exclusive consumer behind another", documented: true, send: send(declared("wire"), consumeOf("wire", "t", 0, ""), consumeOf("wire", "u", 0b0100, ""), qos)},
	{name: "a consumer behind an exclusive one", documented: true, send: send(declared("wire"), consumeOf("wire", "t", 0b0100, ""), consumeOf("wire", "u", 0, ""), qos)},
	{name: "a consumer that is refused and wants no answer", send: send(consumeOf("no-such-queue", "t", 0b1000, ""), qos)},
	{name: "the end of no consumer", send: send(method(1, 60, 30, "none", byte(0)), qos)},
	{name: "the end of no consumer that wants no answer", send: send(method(1, 60, 30, "none", byte(1)), qos)},
	{name: "the end of a consumer twice", documented: true, send: send(declared("wire"), consumeOf("wire", "t", 0, ""), method(1, 60, 30, "t", byte(0)), method(1, 60, 30, "t", byte(0)), qos)},
	{name: "a consumer that begins, gets a message and ends at once", documented: true, send: send(append(append(append(declared("wire"), publishOf("", "wire", 0)...), consumeOf("wire", "t", noAckBit, "")...),
		append(method(1, 60, 30, "t", byte(0)), qos...)...))},

	{name: "a prefetch size", send: send(method(1, 60, 10, uint32(1), uint16(0), byte(0)), qos)},
	{name: "an ack of tag 0", send: send(method(1, 60, 80, uint64(0), byte(0)), qos)},
	{name: "an ack of all where there are none", send: send(method(1, 60, 80, uint64(0), byte(1)), qos)},
	{name: "an ack of many up to one that is not held", send: send(declared("wire"), publishOf("", "wire", 0), getOf("wire"), method(1, 60, 80, uint64(2), byte(1)), qos)},
	{name: "an ack twice", send: send(declared("wire"), publishOf("", "wire", 0), getOf("wire"), method(1, 60, 80, ackTag1, byte(0)), method(1, 60, 80, ackTag1, byte(0)), qos)},
	{name: "a nack of all where there are none", send: send(method(1, 60, 120, uint64(0), byte(1)), qos)},
	{name: "a nack of tag 0", send: send(method(1, 60, 120, uint64(0), byte(0)), qos)},
	{name: "a reject of tag 0", send: send(method(1, 60, 90, uint64(0), byte(0)), qos)},
	{name: "a recovery without requeueing", send: send(method(1, 60, 110, byte(0)), qos)},
	{name: "a recovery", send: send(declared("wire"), publishOf("", "wire", 0), getOf("wire"), method(1, 60, 110, byte(1)), getOf("wire"))},
	{name: "a recovery without an answer", send: send(declared("wire"), publishOf("", "wire", 0), getOf("wire"), method(1, 60, 100, byte(1)), qos)},
	{name: "a recovery without an answer and requeueing", send: send(method(1, 60, 100, byte(0)), qos)},

	{name: "tx.commit without a transaction", send: send(txCommit, qos)},
	{name: "tx.rollback without a transaction", send: send(txRollback, qos)},
	{name: "tx.select twice", send: send(txSelect, txSelect, qos)},
	{name: "confirm.select twice", send: send(confirmSelect, confirmSelect, qos)},
	{name: "confirm.select that wants no answer", documented: true, send: send(method(1, 85, 10, byte(1)), publishOf("", "none", 0), qos)},
	{name: "confirm.select in a transaction", send: send(txSelect, confirmSelect, qos)},
	{name: "tx.select behind confirm.select", send: send(confirmSelect, txSelect, qos)},
	{name: "an empty transaction", send: send(txSelect, txCommit, txRollback, qos)},
	{name: "a message that is returned at the commit", send: send(txSelect, publishOf("", "none", mandatory), qos, txCommit)},
	{name: "a message that is forgotten at the rollback", send: send(txSelect, publishOf("", "none", mandatory), txRollback, txCommit)},
	{name: "an ack in a transaction, twice", send: send(declared("wire"), publishOf("", "wire", 0), getOf("wire"), txSelect, method(1, 60, 80, ackTag1, byte(0)), method(1, 60, 80, ackTag1, byte(0)), qos)},
	{name: "an unroutable message with a confirm", documented: true, send: send(confirmSelect, publishOf("", "none", mandatory), qos)},

	{name: "the deletion of no queue", send: send(method(1, 50, 40, uint16(0), "no-such-queue", byte(0)), qos)},
	{name: "a purge of no queue", send: send(method(1, 50, 30, uint16(0), "no-such-queue", byte(0)), qos)},
	{name: "a binding to the default exchange", send: send(declared("wire"), bindOf("wire", "", "k"), qos)},
	{name: "the end of a binding to the default exchange", send: send(declared("wire"), unbindOf("wire", "", "wire"), qos)},
	{name: "a binding of no queue", send: send(bindOf("no-such-queue", "amq.direct", "k"), qos)},
	{name: "a binding to no exchange", send: send(declared("wire"), bindOf("wire", "no-such-exchange", "k"), qos)},
	{name: "the end of no binding", send: send(declared("wire"), unbindOf("wire", "amq.direct", "k"), qos)},
	{name: "the end of a binding of nothing", send: send(unbindOf("no-such-queue", "no-such-exchange", "k"), qos)},
	{name: "a queue with a reserved name", send: send(declared("amq.mine"), qos)},
	{name: "a queue that is there and wants no answer", send: send(declared("wire"), method(1, 50, 10, uint16(0), "wire", byte(0b10010), []byte{}), qos)},

	{name: "an exchange with a reserved name", send: send(exchangeOf("amq.mine", "direct", 0), qos)},
	{name: "an exchange that there always is", send: send(exchangeOf("amq.direct", "direct", 0b0010), qos)},
	{name: "an exchange that there always is, as another", send: send(exchangeOf("amq.direct", "topic", 0b0010), qos)},
	{name: "an exchange that there always is, not durable", send: send(exchangeOf("amq.direct", "direct", 0), qos)},
	{name: "the default exchange", send: send(exchangeOf("", "direct", 0b0010), qos)},
	{name: "the default exchange, passively", send: send(exchangeOf("", "direct", 0b0001), qos)},
	{name: "no exchange, passively", send: send(exchangeOf("no-such-exchange", "direct", 0b0001), qos)},
	{name: "an exchange of another type, passively", send: send(exchangeOf("amq.direct", "topic", 0b0001), qos)},
	{name: "an exchange of no known type, passively", send: send(exchangeOf("amq.direct", "x-none", 0b0001), qos)},
	{name: "an exchange of no known type", documented: true, send: send(exchangeOf("wire-x", "x-none", 0b0100), qos)},
	{name: "an exchange of no type", documented: true, send: send(exchangeOf("wire-x", "", 0b0100), qos)},
	{name: "an exchange of no known type that wants no answer", documented: true, send: send(exchangeOf("wire-x", "x-none", 0b10100), qos)},
	{name: "the deletion of the default exchange", send: send(method(1, 40, 20, uint16(0), "", byte(0)), qos)},
	{name: "the deletion of an exchange that there always is", send: send(method(1, 40, 20, uint16(0), "amq.direct", byte(0)), qos)},
	{name: "the deletion of no exchange", send: send(method(1, 40, 20, uint16(0), "no-such-exchange", byte(0)), qos)},
	{name: "a binding of the default exchange to another", send: send(exchangeBindOf("", "amq.direct"), qos)},
	{name: "a binding of an exchange to the default one", send: send(exchangeBindOf("amq.direct", ""), qos)},
	{name: "a binding of an exchange to none", send: send(exchangeBindOf("amq.direct", "no-such-exchange"), qos)},
	{name: "a binding of no exchange", send: send(exchangeBindOf("no-such-exchange", "amq.direct"), qos)},

	{name: "a message to no exchange", send: send(publishOf("no-such-exchange", "k", 0), qos)},
	{name: "a message to an internal exchange", send: send(publishOf("amq.rabbitmq.trace", "k", 0), qos)},
	{name: "a message of another user", send: send(publishOf("", "none", mandatory, short(0x0010, "somebody")...), qos)},
	{name: "a message with a wrong expiration", send: send(publishOf("", "none", mandatory, short(0x0100, "soon")...), qos)},
	{name: "a message with a huge expiration", send: send(publishOf("", "none", mandatory, short(0x0100, "99999999999999999999999")...), qos)},
	{name: "a message with no expiration", send: send(publishOf("", "none", mandatory, short(0x0100, "")...), qos)},
	{name: "a message of an unknown mode", documented: true, send: send(declared("wire"), publishOf("", "wire", 0, 0x10, 0, 9), getOf("wire"))},
	{name: "a message with copies to a text", send: send(publishOf("", "none", 0, headersOf("\x02CCS\x00\x00\x00\x01k")...), qos)},
	{name: "a message with copies to nobody", send: send(publishOf("", "none", mandatory, headersOf("\x03BCCA\x00\x00\x00\x00")...), qos)},
	{name: "a message with copies to a void", send: send(publishOf("", "none", mandatory, headersOf("\x02CCV")...), qos)},
	{name: "a message with copies twice", send: send(declared("wire"), publishOf("", "none", mandatory, headersOf("\x02CCA\x00\x00\x00\x09S\x00\x00\x00\x04wire\x02CCA\x00\x00\x00\x00")...), getOf("wire"))},
	{name: "a message to the same queue by key and copies", send: send(declared("wire"), publishOf("", "wire", mandatory, headersOf("\x02CCA\x00\x00\x00\x09S\x00\x00\x00\x04wire")...), getOf("wire"), getOf("wire"))},

	{name: "a consumer of replies that acknowledges", send: send(consumeOf(replyTo, "t", 0, ""), qos)},
	{name: "a consumer of replies", send: send(consumeOf(replyTo, "t", noAckBit, ""), qos)},
	{name: "two consumers of replies", send: send(consumeOf(replyTo, "t", noAckBit, ""), consumeOf(replyTo, "u", noAckBit, ""), qos)},
	{name: "an exclusive consumer of replies", send: send(consumeOf(replyTo, "t", noAckBit|0b0100, ""), qos)},
	{name: "a consumer of replies that ends and begins again", send: send(consumeOf(replyTo, "t", noAckBit, ""), method(1, 60, 30, "t", byte(0)), consumeOf(replyTo, "u", noAckBit, ""), qos)},
	{name: "a request without a consumer of replies", send: send(publishOf("", "none", 0, short(0x0200, replyTo)...), qos)},
	{name: "a reply to nobody", send: send(publishOf("", replyTo+".none", mandatory), qos)},
	{name: "a get of replies", send: send(getOf(replyTo), qos)},
	{name: "a purge of replies", send: send(method(1, 50, 30, uint16(0), replyTo, byte(0)), qos)},
	{name: "the deletion of replies", send: send(method(1, 50, 40, uint16(0), replyTo, byte(0)), qos)},
	{name: "a declaration of replies", send: send(declared(replyTo), qos)},
	{name: "a passive declaration of replies", send: send(passive(replyTo), qos)},
	{name: "a passive declaration of a reply to nobody", send: send(passive(replyTo+".none"), qos)},
	{name: "a binding of replies", send: send(bindOf(replyTo, "amq.direct", "k"), qos)},
	{name: "a binding of a reply to nobody", documented: true, send: send(bindOf(replyTo+".none", "amq.direct", "k"), qos)},

	{name: "connection.update-secret", documented: true, send: send(method(0, 10, 70, []byte("wrong"), "why"))},
	{name: "connection.blocked from a client", send: send(method(0, 10, 60, "why"))},
	{name: "connection.secure-ok that answers nothing", send: send(method(0, 10, 21, []byte("x")))},
	{name: "a property that is last in its frame", send: send(declared("wire"), publishOf("", "wire", 0, short(correlation, "c")...), getOf("wire"))},
}
