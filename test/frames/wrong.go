package frames

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// Case is what a client sends that has logged in and opened channel 1, and that is wrong, in the wrong place, or odd.
type Case struct {
	Name string
	Tune Tune // zero: Usual
	Send [][]byte
	// Early: Send comes in place of connection.open, or, with StartOK too, of connection.start-ok.
	Early, StartOK bool
	Patience       time.Duration // how long the answer may take; zero: as usual
	// Documented: docs/compatibility.md names where Warren's answer is not RabbitMQ's.
	Documented bool
}

// Tune is what a client answers to connection.tune.
type Tune struct {
	Channels  uint16
	Frame     uint32
	Heartbeat uint16
}

// Usual is what the cases have that say nothing else.
var Usual = Tune{100, 131072, 0}

// Wrong returns all cases. They are not to be changed.
func Wrong() []Case { return slices.Concat(frameCases, methodCases) }

func frame(kind byte, channel uint16, payload ...byte) []byte { return Frame(kind, channel, payload) }

func method(channel, class, id uint16, args ...any) []byte {
	return Method(channel, class, id, args...)
}

// header is a frame with a content's header. rest are the flags and what they announce.
func header(channel, class, weight uint16, size uint64, rest ...byte) []byte {
	p := binary.BigEndian.AppendUint16(nil, class)
	p = binary.BigEndian.AppendUint16(p, weight)
	p = binary.BigEndian.AppendUint64(p, size)
	if rest == nil {
		rest = []byte{0, 0}
	}
	return Frame(TypeHeader, channel, append(p, rest...))
}

func body(channel uint16, text string) []byte { return Frame(TypeBody, channel, []byte(text)) }

// Methods that the cases are made of.
var (
	publishNowhere = method(1, 60, 40, uint16(0), "", "none", byte(0))
	qos            = method(1, 60, 10, uint32(0), uint16(1), byte(0))
	closeChannel   = method(1, 20, 40, uint16(200), "bye", uint16(0), uint16(0))
	closeOk        = method(1, 20, 41)
	openChannel    = method(1, 20, 10, "")
	closeAll       = method(0, 10, 50, uint16(200), "bye", uint16(0), uint16(0))
	getNothing     = method(1, 60, 70, uint16(0), "no-such-queue", byte(0))
)

func send(frames ...[]byte) [][]byte { return frames }

// endsWith is a frame with another end.
func endsWith(f []byte, end byte) []byte {
	f = bytes.Clone(f)
	f[len(f)-1] = end
	return f
}

// longer is a method with bytes behind it, in a frame that says so.
func longer(f []byte, more string) []byte {
	return frame(f[0], uint16(f[1])<<8|uint16(f[2]), append(bytes.Clone(f[7:len(f)-1]), more...)...)
}

// shorter is a method of which the last bytes are missing.
func shorter(f []byte, n int) []byte {
	return frame(f[0], uint16(f[1])<<8|uint16(f[2]), f[7:len(f)-1-n]...)
}

// declare is queue.declare of a queue that goes with the connection.
func declare(table []byte) []byte {
	return method(1, 50, 10, uint16(0), "", byte(0b0100), table)
}

var frameCases = []Case{
	{Name: "silence for two heartbeats", Tune: Tune{100, 131072, 1}, Patience: 8 * time.Second},
	{Name: "a heartbeat", Send: send(frame(TypeHeartbeat, 0), qos)},
	{Name: "a heartbeat with a payload", Documented: true, Send: send(frame(TypeHeartbeat, 0, 1, 2), qos)},
	{Name: "a heartbeat on a channel", Send: send(frame(TypeHeartbeat, 1), qos)},
	{Name: "a heartbeat on a channel that is not open", Send: send(frame(TypeHeartbeat, 9), qos)},
	{Name: "a heartbeat in the middle of a content", Send: send(publishNowhere, header(1, 60, 0, 1), frame(TypeHeartbeat, 0), body(1, "b"), qos)},

	{Name: "a body frame beyond frame_max", Send: send(publishNowhere, header(1, 60, 0, 140000), frame(TypeBody, 1, make([]byte, 140000)...))},
	{Name: "a body frame one byte beyond frame_max", Send: send(publishNowhere, header(1, 60, 0, 131072-7), frame(TypeBody, 1, make([]byte, 131072-7)...))},
	{Name: "a body frame of frame_max", Send: send(publishNowhere, header(1, 60, 0, 131072-8), frame(TypeBody, 1, make([]byte, 131072-8)...), qos)},
	{Name: "a method frame beyond frame_max", Send: send(frame(TypeMethod, 1, make([]byte, 140000)...))},
	{Name: "a huge frame that is only announced", Send: send([]byte{TypeBody, 0, 1, 0xff, 0xff, 0xff, 0xff})},
	{Name: "a frame beyond frame_max on channel 0", Send: send(frame(TypeMethod, 0, make([]byte, 140000)...))},
	{Name: "a frame beyond frame_max on a channel that is not open", Send: send(frame(TypeBody, 9, make([]byte, 140000)...))},

	{Name: "wrong end of a method", Send: send(endsWith(qos, 0))},
	{Name: "wrong end of a header", Send: send(publishNowhere, endsWith(header(1, 60, 0, 1), 0))},
	{Name: "wrong end of a body", Send: send(publishNowhere, header(1, 60, 0, 1), endsWith(body(1, "b"), 0xcd))},
	{Name: "wrong end of a heartbeat", Send: send(endsWith(frame(TypeHeartbeat, 0), 0))},
	{Name: "wrong end before connection.open", Send: send(endsWith(method(0, 10, 40, "/", "", byte(0)), 0)), Early: true},

	{Name: "a method on a channel that is not open", Send: send(method(9, 60, 10, uint32(0), uint16(1), byte(0)))},
	{Name: "channel.close on a channel that is not open", Send: send(method(9, 20, 40, uint16(200), "", uint16(0), uint16(0)))},
	{Name: "channel.close-ok on a channel that is not open", Documented: true, Send: send(method(9, 20, 41), qos)},
	{Name: "channel.flow-ok on a channel that is not open", Documented: true, Send: send(method(9, 20, 21, byte(1)), qos)},
	{Name: "basic.ack on a channel that is not open", Documented: true, Send: send(method(9, 60, 80, uint64(1), byte(0)), qos)},
	{Name: "a header on a channel that is not open", Send: send(header(9, 60, 0, 1))},
	{Name: "a body on a channel that is not open", Send: send(body(9, "b"))},
	{Name: "a method on a channel that was closed", Documented: true, Send: send(closeChannel, qos)},
	{Name: "a method of channels on channel 0", Send: send(method(0, 60, 10, uint32(0), uint16(1), byte(0)))},
	{Name: "channel.open on channel 0", Send: send(method(0, 20, 10, ""))},
	{Name: "a content on channel 0", Send: send(method(0, 60, 40, uint16(0), "", "none", byte(0)), header(0, 60, 0, 0))},
	{Name: "connection.close on a channel", Send: send(method(1, 10, 50, uint16(200), "bye", uint16(0), uint16(0)))},
	{Name: "connection.open again", Send: send(method(0, 10, 40, "/", "", byte(0)))},
	{Name: "connection.tune-ok again", Send: send(method(0, 10, 31, uint16(10), uint32(131072), uint16(0)))},
	{Name: "connection.start-ok again", Send: send(method(0, 10, 11, []byte{}, "PLAIN", []byte("\x00guest\x00guest"), "en_US"))},
	{Name: "connection.close-ok that answers nothing", Documented: true, Send: send(method(0, 10, 51), qos)},
	{Name: "channel.close-ok that answers nothing", Documented: true, Send: send(closeOk, qos)},
	{Name: "channel.flow-ok that answers nothing", Send: send(method(1, 20, 21, byte(1)), qos)},
	{Name: "channel.flow on", Send: send(method(1, 20, 20, byte(1)), qos)},
	{Name: "channel.flow off", Send: send(method(1, 20, 20, byte(0)), qos)},
	{Name: "channel.open with text", Send: send(method(2, 20, 10, "out of band"), qos)},
	{Name: "access.request", Send: send(method(1, 30, 10, "/data", byte(0xff)), qos)},

	{Name: "a header of another class", Send: send(publishNowhere, header(1, 50, 0, 0))},
	{Name: "a header of no class", Send: send(publishNowhere, header(1, 0, 0, 0))},
	{Name: "a header with weight", Documented: true, Send: send(publishNowhere, header(1, 60, 1, 0), qos)},
	{Name: "a header for an impossible size", Documented: true, Send: send(publishNowhere, header(1, 60, 0, 1<<40))},
	{Name: "a header for the largest size", Documented: true, Send: send(publishNowhere, header(1, 60, 0, 1<<64-1))},
	{Name: "a header that is cut off in its size", Documented: true, Send: send(publishNowhere, frame(TypeHeader, 1, 0, 60, 0, 0, 0))},
	{Name: "a header without flags", Documented: true, Send: send(publishNowhere, frame(TypeHeader, 1, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))},
	{Name: "a header without a property that it announces", Documented: true, Send: send(publishNowhere, header(1, 60, 0, 0, 0x80, 0))},
	{Name: "a header with more than it announces", Documented: true, Send: send(publishNowhere, header(1, 60, 0, 0, 0, 0, 1, 2), qos)},
	{Name: "a header with flags that mean nothing", Documented: true, Send: send(publishNowhere, header(1, 60, 0, 0, 0, 2), qos)},
	{Name: "a header with flags that go on", Documented: true, Send: send(publishNowhere, header(1, 60, 0, 0, 0, 1, 0, 0), qos)},
	{Name: "a header with a cluster id", Send: send(publishNowhere, header(1, 60, 0, 0, 0, 4, 3, 'a', 'b', 'c'), qos)},
	{Name: "a header with a table of an unknown type", Documented: true, Send: send(publishNowhere, header(1, 60, 0, 0, 0x20, 0, 0, 0, 0, 3, 1, 'k', 'Z'))},
	{Name: "a header with a table that is cut off", Documented: true, Send: send(publishNowhere, header(1, 60, 0, 0, 0x20, 0, 0, 0, 0, 9, 1, 'k'))},
	{Name: "an empty header frame", Documented: true, Send: send(publishNowhere, frame(TypeHeader, 1))},

	{Name: "no header but a method", Send: send(publishNowhere, qos)},
	{Name: "no header but a body", Send: send(publishNowhere, body(1, "b"))},
	{Name: "a header without a method", Send: send(header(1, 60, 0, 1))},
	{Name: "a body without a method", Send: send(body(1, "b"))},
	{Name: "a header in place of a body", Send: send(publishNowhere, header(1, 60, 0, 1), header(1, 60, 0, 1))},
	{Name: "a method in place of a body", Send: send(publishNowhere, header(1, 60, 0, 1), qos)},
	{Name: "a body beyond its size", Documented: true, Send: send(publishNowhere, header(1, 60, 0, 1), body(1, "two"))},
	{Name: "a body beyond its size in the second frame", Documented: true, Send: send(publishNowhere, header(1, 60, 0, 3), body(1, "two"[:2]), body(1, "more"))},
	{Name: "a body for a size of 0", Send: send(publishNowhere, header(1, 60, 0, 0), body(1, "b"))},
	{Name: "an empty body for a size of 0", Send: send(publishNowhere, header(1, 60, 0, 0), body(1, ""))},
	{Name: "empty body frames", Send: send(publishNowhere, header(1, 60, 0, 2), body(1, ""), body(1, "a"), body(1, ""), body(1, "b"), qos)},
	{Name: "contents of two channels between each other", Send: send(method(2, 20, 10, ""), publishNowhere, method(2, 60, 40, uint16(0), "", "none", byte(0)),
		header(2, 60, 0, 1), header(1, 60, 0, 1), body(2, "b"), body(1, "b"), qos)},

	{Name: "channel.close in the middle of a content", Send: send(publishNowhere, header(1, 60, 0, 9), body(1, "half"), closeChannel)},
	{Name: "channel.close before the header", Send: send(publishNowhere, closeChannel)},
	{Name: "channel.close in the middle of a content that goes on", Send: send(publishNowhere, header(1, 60, 0, 8), body(1, "half"), closeChannel, body(1, "half"))},
	{Name: "connection.close in the middle of a content", Send: send(publishNowhere, header(1, 60, 0, 9), body(1, "half"), closeAll)},
	{Name: "connection.close in the middle of a content that goes on", Send: send(publishNowhere, header(1, 60, 0, 8), body(1, "half"), closeAll, body(1, "half"))},
	{Name: "the channel is closed in the middle of a content", Documented: true, Send: send(getNothing, publishNowhere, header(1, 60, 0, 8), body(1, "half"), closeOk, body(1, "half"), openChannel)},
	{Name: "methods and contents behind a refusal", Send: send(getNothing, qos, publishNowhere, header(1, 60, 0, 4), body(1, "half"), qos, closeOk, openChannel, qos)},
	{Name: "channel.open behind a refusal", Documented: true, Send: send(getNothing, openChannel, qos)},
	{Name: "channel.close behind a refusal", Send: send(getNothing, closeChannel, closeOk, openChannel)},
	{Name: "channel.close and no close-ok behind a refusal", Documented: true, Send: send(getNothing, closeChannel, openChannel)},
	{Name: "wrong frames behind a refusal", Documented: true, Send: send(getNothing, body(1, "b"), header(1, 60, 0, 3), qos, closeOk, openChannel)},
	{Name: "a method that cannot be read behind a refusal", Documented: true, Send: send(getNothing, shorter(qos, 2), closeOk, openChannel)},
	{Name: "methods behind connection.close", Send: send(closeAll, qos, openChannel, body(1, "b"))},

	{Name: "more bytes behind basic.qos", Documented: true, Send: send(longer(qos, "more"), qos)},
	{Name: "more bytes behind queue.declare", Documented: true, Send: send(longer(declare(nil), "more"), qos)},
	{Name: "more bytes behind basic.publish", Documented: true, Send: send(longer(publishNowhere, "more"), header(1, 60, 0, 0), qos)},
	{Name: "more bytes behind channel.open", Documented: true, Send: send(longer(method(2, 20, 10, ""), "more"), qos)},
	{Name: "more bytes behind channel.close", Documented: true, Send: send(longer(closeChannel, "more"))},
	{Name: "more bytes behind connection.open", Documented: true, Send: send(longer(method(0, 10, 40, "/", "", byte(0)), "more")), Early: true},
	{Name: "more bytes behind connection.close", Documented: true, Send: send(longer(closeAll, "more"))},
	{Name: "basic.qos that is cut off", Documented: true, Send: send(shorter(qos, 2))},
	{Name: "basic.publish that is cut off", Documented: true, Send: send(shorter(publishNowhere, 2))},
	{Name: "connection.open that is cut off", Documented: true, Send: send(shorter(method(0, 10, 40, "/", "", byte(0)), 2)), Early: true},
	{Name: "a method without a number", Documented: true, Send: send(frame(TypeMethod, 1, 0, 60))},
	{Name: "an empty method frame", Documented: true, Send: send(frame(TypeMethod, 1))},
	{Name: "an unknown method", Documented: true, Send: send(method(1, 60, 99))},
	{Name: "an unknown class", Documented: true, Send: send(method(1, 99, 10))},
	{Name: "an unknown method on channel 0", Documented: true, Send: send(method(0, 10, 99))},
	{Name: "basic.deliver from a client", Send: send(method(1, 60, 60, "tag", uint64(1), byte(0), "", "key"), header(1, 60, 0, 0))},
	{Name: "queue.declare-ok from a client", Send: send(method(1, 50, 11, "q", uint32(0), uint32(0)))},
	{Name: "basic.cancel-ok from a client", Documented: true, Send: send(method(1, 60, 31, "tag"), qos)},
	{Name: "connection.start from a client", Send: send(method(0, 10, 10, byte(0), byte(9), []byte{}, []byte("PLAIN"), []byte("en_US")))},
	{Name: "an unknown frame type", Send: send(frame(7, 1, 'w'))},
	{Name: "frame type 0", Send: send(frame(0, 0))},
	{Name: "an unknown frame type on channel 0", Send: send(frame(7, 0, 'w'))},

	{Name: "a table with an unknown type", Documented: true, Send: send(declare([]byte("\x01kZ")))},
	{Name: "a table that is cut off", Documented: true, Send: send(declare([]byte("\x09k")))},
	{Name: "a table in which a string goes beyond it", Documented: true, Send: send(declare([]byte("\x01kS\x00\x00\x00\x09v")))},
	{Name: "a table with a name twice", Send: send(declare([]byte("\x01kt\x01\x01kt\x00")))},
	{Name: "a table with an empty name", Send: send(declare([]byte("\x00t\x01")))},
	{Name: "a table with every harmless type", Send: send(declare([]byte("\x01at\x01\x01bb\x01\x01cB\x01\x01ds\x00\x01\x01eu\x00\x01\x01fI\x00\x00\x00\x01\x01gi\x00\x00\x00\x01\x01hV")))},
	{Name: "a name of 255 bytes", Send: send(method(1, 50, 10, uint16(0), strings.Repeat("n", 255), byte(0b0101), []byte{}))},

	{Name: "channel number at channel_max", Send: send(method(100, 20, 10, ""), qos)},
	{Name: "channel number above channel_max", Send: send(method(101, 20, 10, ""), qos)},
	{Name: "the largest channel number", Send: send(method(65535, 20, 10, ""), qos)},
	{Name: "one channel more than channel_max", Tune: Tune{1, 131072, 0}, Send: send(method(2, 20, 10, ""), qos)},
	{Name: "tune-ok with more channels", Tune: Tune{65535, 131072, 0}, Send: send(qos)},
	{Name: "tune-ok with more channels, before connection.open", Documented: true, Tune: Tune{3000, 131072, 0}, Early: true},
	{Name: "tune-ok with any number of channels", Tune: Tune{0, 131072, 0}, Send: send(qos)},
	{Name: "tune-ok with larger frames", Documented: true, Tune: Tune{100, 131073, 0}, Early: true},
	{Name: "tune-ok with frames of any size", Tune: Tune{100, 0, 0}, Send: send(qos)},
	{Name: "tune-ok with the smallest frames", Documented: true, Tune: Tune{100, 4096, 0}, Send: send(qos)},
	{Name: "tune-ok with frames that are too small", Documented: true, Tune: Tune{100, 4095, 0}, Early: true},
	{Name: "tune-ok with a longer heartbeat", Tune: Tune{100, 131072, 65535}, Send: send(qos)},
	{Name: "a method before connection.open", Documented: true, Send: send(qos), Early: true},
	{Name: "channel.open before connection.open", Documented: true, Send: send(openChannel), Early: true},
	{Name: "connection.close before connection.open", Documented: true, Send: send(closeAll), Early: true},
	{Name: "a heartbeat before connection.open", Send: send(frame(TypeHeartbeat, 0), method(0, 10, 40, "/", "", byte(0))), Early: true},
	{Name: "connection.open of no vhost", Send: send(method(0, 10, 40, "", "", byte(0))), Early: true},
	{Name: "connection.open in place of start-ok", Documented: true, Send: send(method(0, 10, 40, "/", "", byte(0))), Early: true, StartOK: true},
	{Name: "connection.close in place of start-ok", Documented: true, Send: send(closeAll), Early: true, StartOK: true},
	{Name: "a heartbeat in place of start-ok", Send: send(frame(TypeHeartbeat, 0)), Early: true, StartOK: true},
	{Name: "a body in place of start-ok", Documented: true, Send: send(body(0, "b")), Early: true, StartOK: true},
	{Name: "the protocol's header again", Documented: true, Send: send([]byte("AMQP\x00\x00\x09\x01")), Early: true, StartOK: true},
	{Name: "the protocol's header in an open connection", Send: send([]byte("AMQP\x00\x00\x09\x01"))},
}
