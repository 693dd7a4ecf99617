package frames

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
var methodCases = []Case{
	{Name: "a queue name that is no UTF-8", Send: send(declared(noUTF8), qos)},
	{Name: "an exchange name that is no UTF-8", Send: send(exchangeOf(noUTF8, "direct", 0b0001), qos)},
	{Name: "an exchange type that is no UTF-8", Send: send(exchangeOf("amq.direct", noUTF8, 0), qos)},
	{Name: "a routing key that is no UTF-8", Send: send(publishOf("", noUTF8, mandatory), qos)},
	{Name: "a routing key of a binding that is no UTF-8", Send: send(declared("wire"), bindOf("wire", "amq.direct", noUTF8), publishOf("amq.direct", noUTF8, mandatory), getOf("wire"))},
	{Name: "a consumer tag that is no UTF-8", Send: send(declared("wire"), consumeOf("wire", noUTF8, 0, ""), qos)},
	{Name: "a vhost that is no UTF-8", Documented: true, Early: true, Send: send(method(0, 10, 40, noUTF8, "", byte(0)))},
	{Name: "a name of an argument that is no UTF-8", Send: send(declare([]byte("\x04"+noUTF8+"V")), qos)},
	{Name: "a content type that is no UTF-8", Send: send(declared("wire"), publishOf("", "wire", 0, short(0x8000, noUTF8)...), getOf("wire"))},
	{Name: "a header that is no UTF-8", Send: send(declared("wire"), publishOf("", "wire", 0, headersOf("\x04"+noUTF8+"S\x00\x00\x00\x02\xff\xfe")...), getOf("wire"))},
	{Name: "line breaks in names", Send: send(declared("wi\r\nre"), passive("wire"), passive("wi\nre"))},
	{Name: "no name for a passive declaration", Send: send(passive(""), qos)},

	{Name: "a consumer tag twice", Documented: true, Send: send(declared("wire"), consumeOf("wire", "t", 0, ""), consumeOf("wire", "t", 0, ""), qos)},
	{Name: "a consumer of the last queue where there is none", Send: send(consumeOf("", "t", 0, ""), qos)},
	{Name: "a consumer of the last queue", Documented: true, Send: send(declared("wire"), consumeOf("", "t", 0, ""), qos)},
	{Name: "a get from the last queue where there is none", Send: send(getOf(""), qos)},
	{Name: "a purge of the last queue where there is none", Send: send(method(1, 50, 30, uint16(0), "", byte(0)), qos)},
	{Name: "the deletion of the last queue where there is none", Send: send(method(1, 50, 40, uint16(0), "", byte(0)), qos)},
	{Name: "a binding of the last queue where there is none", Send: send(bindOf("", "amq.direct", "k"), qos)},
	{Name: "a binding of the last queue, of its name", Send: send(declared("wire"), bindOf("", "amq.direct", ""), publishOf("amq.direct", "wire", mandatory), getOf("wire"))},
	{Name: "the last queue is one that was declared passively", Send: send(declared("wire"), declared("wire2"), passive("wire"), publishOf("", "wire", 0), getOf(""))},
	{Name: "the last queue is gone", Send: send(declared("wire"), method(1, 50, 40, uint16(0), "wire", byte(0)), getOf(""))},
	{Name: "a priority of a consumer that is text", Send: send(declared("wire"), consumeOf("wire", "t", 0, "\x0ax-priorityS\x00\x00\x00\x01h"), qos)},
	{Name: "a priority of a consumer that is a long", Documented: true, Send: send(declared("wire"), consumeOf("wire", "t", 0, "\x0ax-priorityl\x7f\xff\xff\xff\xff\xff\xff\xff"), qos)},
	{Name: "a priority of a consumer that is void", Send: send(declared("wire"), consumeOf("wire", "t", 0, "\x0ax-priorityV"), qos)},
	{Name: "an exclusive consumer behind another", Documented: true, Send: send(declared("wire"), consumeOf("wire", "t", 0, ""), consumeOf("wire", "u", 0b0100, ""), qos)},
	{Name: "a consumer behind an exclusive one", Documented: true, Send: send(declared("wire"), consumeOf("wire", "t", 0b0100, ""), consumeOf("wire", "u", 0, ""), qos)},
	{Name: "a consumer that is refused and wants no answer", Send: send(consumeOf("no-such-queue", "t", 0b1000, ""), qos)},
	{Name: "the end of no consumer", Send: send(method(1, 60, 30, "none", byte(0)), qos)},
	{Name: "the end of no consumer that wants no answer", Send: send(method(1, 60, 30, "none", byte(1)), qos)},
	{Name: "the end of a consumer twice", Documented: true, Send: send(declared("wire"), consumeOf("wire", "t", 0, ""), method(1, 60, 30, "t", byte(0)), method(1, 60, 30, "t", byte(0)), qos)},
	{Name: "a consumer that begins, gets a message and ends at once", Documented: true, Send: send(append(append(append(declared("wire"), publishOf("", "wire", 0)...), consumeOf("wire", "t", noAckBit, "")...),
		append(method(1, 60, 30, "t", byte(0)), qos...)...))},

	{Name: "a prefetch size", Send: send(method(1, 60, 10, uint32(1), uint16(0), byte(0)), qos)},
	{Name: "an ack of tag 0", Send: send(method(1, 60, 80, uint64(0), byte(0)), qos)},
	{Name: "an ack of all where there are none", Send: send(method(1, 60, 80, uint64(0), byte(1)), qos)},
	{Name: "an ack of many up to one that is not held", Send: send(declared("wire"), publishOf("", "wire", 0), getOf("wire"), method(1, 60, 80, uint64(2), byte(1)), qos)},
	{Name: "an ack twice", Send: send(declared("wire"), publishOf("", "wire", 0), getOf("wire"), method(1, 60, 80, ackTag1, byte(0)), method(1, 60, 80, ackTag1, byte(0)), qos)},
	{Name: "a nack of all where there are none", Send: send(method(1, 60, 120, uint64(0), byte(1)), qos)},
	{Name: "a nack of tag 0", Send: send(method(1, 60, 120, uint64(0), byte(0)), qos)},
	{Name: "a reject of tag 0", Send: send(method(1, 60, 90, uint64(0), byte(0)), qos)},
	{Name: "a recovery without requeueing", Send: send(method(1, 60, 110, byte(0)), qos)},
	{Name: "a recovery", Send: send(declared("wire"), publishOf("", "wire", 0), getOf("wire"), method(1, 60, 110, byte(1)), getOf("wire"))},
	{Name: "a recovery without an answer", Send: send(declared("wire"), publishOf("", "wire", 0), getOf("wire"), method(1, 60, 100, byte(1)), qos)},
	{Name: "a recovery without an answer and requeueing", Send: send(method(1, 60, 100, byte(0)), qos)},

	{Name: "tx.commit without a transaction", Send: send(txCommit, qos)},
	{Name: "tx.rollback without a transaction", Send: send(txRollback, qos)},
	{Name: "tx.select twice", Send: send(txSelect, txSelect, qos)},
	{Name: "confirm.select twice", Send: send(confirmSelect, confirmSelect, qos)},
	{Name: "confirm.select that wants no answer", Documented: true, Send: send(method(1, 85, 10, byte(1)), publishOf("", "none", 0), qos)},
	{Name: "confirm.select in a transaction", Send: send(txSelect, confirmSelect, qos)},
	{Name: "tx.select behind confirm.select", Send: send(confirmSelect, txSelect, qos)},
	{Name: "an empty transaction", Send: send(txSelect, txCommit, txRollback, qos)},
	{Name: "a message that is returned at the commit", Send: send(txSelect, publishOf("", "none", mandatory), qos, txCommit)},
	{Name: "a message that is forgotten at the rollback", Send: send(txSelect, publishOf("", "none", mandatory), txRollback, txCommit)},
	{Name: "an ack in a transaction, twice", Send: send(declared("wire"), publishOf("", "wire", 0), getOf("wire"), txSelect, method(1, 60, 80, ackTag1, byte(0)), method(1, 60, 80, ackTag1, byte(0)), qos)},
	{Name: "an unroutable message with a confirm", Documented: true, Send: send(confirmSelect, publishOf("", "none", mandatory), qos)},

	{Name: "the deletion of no queue", Send: send(method(1, 50, 40, uint16(0), "no-such-queue", byte(0)), qos)},
	{Name: "a purge of no queue", Send: send(method(1, 50, 30, uint16(0), "no-such-queue", byte(0)), qos)},
	{Name: "a binding to the default exchange", Send: send(declared("wire"), bindOf("wire", "", "k"), qos)},
	{Name: "the end of a binding to the default exchange", Send: send(declared("wire"), unbindOf("wire", "", "wire"), qos)},
	{Name: "a binding of no queue", Send: send(bindOf("no-such-queue", "amq.direct", "k"), qos)},
	{Name: "a binding to no exchange", Send: send(declared("wire"), bindOf("wire", "no-such-exchange", "k"), qos)},
	{Name: "the end of no binding", Send: send(declared("wire"), unbindOf("wire", "amq.direct", "k"), qos)},
	{Name: "the end of a binding of nothing", Send: send(unbindOf("no-such-queue", "no-such-exchange", "k"), qos)},
	{Name: "a queue with a reserved name", Send: send(declared("amq.mine"), qos)},
	{Name: "a queue that is there and wants no answer", Send: send(declared("wire"), method(1, 50, 10, uint16(0), "wire", byte(0b10010), []byte{}), qos)},

	{Name: "an exchange with a reserved name", Send: send(exchangeOf("amq.mine", "direct", 0), qos)},
	{Name: "an exchange that there always is", Send: send(exchangeOf("amq.direct", "direct", 0b0010), qos)},
	{Name: "an exchange that there always is, as another", Send: send(exchangeOf("amq.direct", "topic", 0b0010), qos)},
	{Name: "an exchange that there always is, not durable", Send: send(exchangeOf("amq.direct", "direct", 0), qos)},
	{Name: "the default exchange", Send: send(exchangeOf("", "direct", 0b0010), qos)},
	{Name: "the default exchange, passively", Send: send(exchangeOf("", "direct", 0b0001), qos)},
	{Name: "no exchange, passively", Send: send(exchangeOf("no-such-exchange", "direct", 0b0001), qos)},
	{Name: "an exchange of another type, passively", Send: send(exchangeOf("amq.direct", "topic", 0b0001), qos)},
	{Name: "an exchange of no known type, passively", Send: send(exchangeOf("amq.direct", "x-none", 0b0001), qos)},
	{Name: "an exchange of no known type", Documented: true, Send: send(exchangeOf("wire-x", "x-none", 0b0100), qos)},
	{Name: "an exchange of no type", Documented: true, Send: send(exchangeOf("wire-x", "", 0b0100), qos)},
	{Name: "an exchange of no known type that wants no answer", Documented: true, Send: send(exchangeOf("wire-x", "x-none", 0b10100), qos)},
	{Name: "the deletion of the default exchange", Send: send(method(1, 40, 20, uint16(0), "", byte(0)), qos)},
	{Name: "the deletion of an exchange that there always is", Send: send(method(1, 40, 20, uint16(0), "amq.direct", byte(0)), qos)},
	{Name: "the deletion of no exchange", Send: send(method(1, 40, 20, uint16(0), "no-such-exchange", byte(0)), qos)},
	{Name: "a binding of the default exchange to another", Send: send(exchangeBindOf("", "amq.direct"), qos)},
	{Name: "a binding of an exchange to the default one", Send: send(exchangeBindOf("amq.direct", ""), qos)},
	{Name: "a binding of an exchange to none", Send: send(exchangeBindOf("amq.direct", "no-such-exchange"), qos)},
	{Name: "a binding of no exchange", Send: send(exchangeBindOf("no-such-exchange", "amq.direct"), qos)},

	{Name: "a message to no exchange", Send: send(publishOf("no-such-exchange", "k", 0), qos)},
	{Name: "a message to an internal exchange", Send: send(publishOf("amq.rabbitmq.trace", "k", 0), qos)},
	{Name: "a message of another user", Send: send(publishOf("", "none", mandatory, short(0x0010, "somebody")...), qos)},
	{Name: "a message with a wrong expiration", Send: send(publishOf("", "none", mandatory, short(0x0100, "soon")...), qos)},
	{Name: "a message with a huge expiration", Send: send(publishOf("", "none", mandatory, short(0x0100, "99999999999999999999999")...), qos)},
	{Name: "a message with no expiration", Send: send(publishOf("", "none", mandatory, short(0x0100, "")...), qos)},
	{Name: "a message of an unknown mode", Documented: true, Send: send(declared("wire"), publishOf("", "wire", 0, 0x10, 0, 9), getOf("wire"))},
	{Name: "a message with copies to a text", Send: send(publishOf("", "none", 0, headersOf("\x02CCS\x00\x00\x00\x01k")...), qos)},
	{Name: "a message with copies to nobody", Send: send(publishOf("", "none", mandatory, headersOf("\x03BCCA\x00\x00\x00\x00")...), qos)},
	{Name: "a message with copies to a void", Send: send(publishOf("", "none", mandatory, headersOf("\x02CCV")...), qos)},
	{Name: "a message with copies twice", Send: send(declared("wire"), publishOf("", "none", mandatory, headersOf("\x02CCA\x00\x00\x00\x09S\x00\x00\x00\x04wire\x02CCA\x00\x00\x00\x00")...), getOf("wire"))},
	{Name: "a message to the same queue by key and copies", Send: send(declared("wire"), publishOf("", "wire", mandatory, headersOf("\x02CCA\x00\x00\x00\x09S\x00\x00\x00\x04wire")...), getOf("wire"), getOf("wire"))},

	{Name: "a consumer of replies that acknowledges", Send: send(consumeOf(replyTo, "t", 0, ""), qos)},
	{Name: "a consumer of replies", Send: send(consumeOf(replyTo, "t", noAckBit, ""), qos)},
	{Name: "two consumers of replies", Send: send(consumeOf(replyTo, "t", noAckBit, ""), consumeOf(replyTo, "u", noAckBit, ""), qos)},
	{Name: "an exclusive consumer of replies", Send: send(consumeOf(replyTo, "t", noAckBit|0b0100, ""), qos)},
	{Name: "a consumer of replies that ends and begins again", Send: send(consumeOf(replyTo, "t", noAckBit, ""), method(1, 60, 30, "t", byte(0)), consumeOf(replyTo, "u", noAckBit, ""), qos)},
	{Name: "a request without a consumer of replies", Send: send(publishOf("", "none", 0, short(0x0200, replyTo)...), qos)},
	{Name: "a reply to nobody", Send: send(publishOf("", replyTo+".none", mandatory), qos)},
	{Name: "a get of replies", Send: send(getOf(replyTo), qos)},
	{Name: "a purge of replies", Send: send(method(1, 50, 30, uint16(0), replyTo, byte(0)), qos)},
	{Name: "the deletion of replies", Send: send(method(1, 50, 40, uint16(0), replyTo, byte(0)), qos)},
	{Name: "a declaration of replies", Send: send(declared(replyTo), qos)},
	{Name: "a passive declaration of replies", Send: send(passive(replyTo), qos)},
	{Name: "a passive declaration of a reply to nobody", Send: send(passive(replyTo+".none"), qos)},
	{Name: "a binding of replies", Send: send(bindOf(replyTo, "amq.direct", "k"), qos)},
	{Name: "a binding of a reply to nobody", Documented: true, Send: send(bindOf(replyTo+".none", "amq.direct", "k"), qos)},

	{Name: "connection.update-secret", Documented: true, Send: send(method(0, 10, 70, []byte("wrong"), "why"))},
	{Name: "connection.blocked from a client", Send: send(method(0, 10, 60, "why"))},
	{Name: "connection.secure-ok that answers nothing", Send: send(method(0, 10, 21, []byte("x")))},
	{Name: "a property that is last in its frame", Send: send(declared("wire"), publishOf("", "wire", 0, short(correlation, "c")...), getOf("wire"))},
}
