package main

import (
	"bytes"
	"strings"
	"time"
)

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

var frameCases = []wireCase{
	{name: "silence for two heartbeats", tune: tuned{100, 131072, 1}, patience: 8 * time.Second},
	{name: "a heartbeat", send: send(frame(frameHeartbeat, 0), qos)},
	{name: "a heartbeat with a payload", documented: true, send: send(frame(frameHeartbeat, 0, 1, 2), qos)},
	{name: "a heartbeat on a channel", send: send(frame(frameHeartbeat, 1), qos)},
	{name: "a heartbeat on a channel that is not open", send: send(frame(frameHeartbeat, 9), qos)},
	{name: "a heartbeat in the middle of a content", send: send(publishNowhere, header(1, 60, 0, 1), frame(frameHeartbeat, 0), body(1, "b"), qos)},

	{name: "a body frame beyond frame_max", send: send(publishNowhere, header(1, 60, 0, 140000), frame(frameBody, 1, make([]byte, 140000)...))},
	{name: "a body frame one byte beyond frame_max", send: send(publishNowhere, header(1, 60, 0, 131072-7), frame(frameBody, 1, make([]byte, 131072-7)...))},
	{name: "a body frame of frame_max", send: send(publishNowhere, header(1, 60, 0, 131072-8), frame(frameBody, 1, make([]byte, 131072-8)...), qos)},
	{name: "a method frame beyond frame_max", send: send(frame(frameMethod, 1, make([]byte, 140000)...))},
	{name: "a huge frame that is only announced", send: send([]byte{frameBody, 0, 1, 0xff, 0xff, 0xff, 0xff})},
	{name: "a frame beyond frame_max on channel 0", send: send(frame(frameMethod, 0, make([]byte, 140000)...))},
	{name: "a frame beyond frame_max on a channel that is not open", send: send(frame(frameBody, 9, make([]byte, 140000)...))},

	{name: "wrong end of a method", send: send(endsWith(qos, 0))},
	{name: "wrong end of a header", send: send(publishNowhere, endsWith(header(1, 60, 0, 1), 0))},
	{name: "wrong end of a body", send: send(publishNowhere, header(1, 60, 0, 1), endsWith(body(1, "b"), 0xcd))},
	{name: "wrong end of a heartbeat", send: send(endsWith(frame(frameHeartbeat, 0), 0))},
	{name: "wrong end before connection.open", send: send(endsWith(method(0, 10, 40, "/", "", byte(0)), 0)), early: true},

	{name: "a method on a channel that is not open", send: send(method(9, 60, 10, uint32(0), uint16(1), byte(0)))},
	{name: "channel.close on a channel that is not open", send: send(method(9, 20, 40, uint16(200), "", uint16(0), uint16(0)))},
	{name: "channel.close-ok on a channel that is not open", documented: true, send: send(method(9, 20, 41), qos)},
	{name: "channel.flow-ok on a channel that is not open", documented: true, send: send(method(9, 20, 21, byte(1)), qos)},
	{name: "basic.ack on a channel that is not open", documented: true, send: send(method(9, 60, 80, uint64(1), byte(0)), qos)},
	{name: "a header on a channel that is not open", send: send(header(9, 60, 0, 1))},
	{name: "a body on a channel that is not open", send: send(body(9, "b"))},
	{name: "a method on a channel that was closed", documented: true, send: send(closeChannel, qos)},
	{name: "a method of channels on channel 0", send: send(method(0, 60, 10, uint32(0), uint16(1), byte(0)))},
	{name: "channel.open on channel 0", send: send(method(0, 20, 10, ""))},
	{name: "a content on channel 0", send: send(method(0, 60, 40, uint16(0), "", "none", byte(0)), header(0, 60, 0, 0))},
	{name: "connection.close on a channel", send: send(method(1, 10, 50, uint16(200), "bye", uint16(0), uint16(0)))},
	{name: "connection.open again", send: send(method(0, 10, 40, "/", "", byte(0)))},
	{name: "connection.tune-ok again", send: send(method(0, 10, 31, uint16(10), uint32(131072), uint16(0)))},
	{name: "connection.start-ok again", send: send(method(0, 10, 11, []byte{}, "PLAIN", []byte("\x00guest\x00guest"), "en_US"))},
	{name: "connection.close-ok that answers nothing", documented: true, send: send(method(0, 10, 51), qos)},
	{name: "channel.close-ok that answers nothing", documented: true, send: send(closeOk, qos)},
	{name: "channel.flow-ok that answers nothing", send: send(method(1, 20, 21, byte(1)), qos)},
	{name: "channel.flow on", send: send(method(1, 20, 20, byte(1)), qos)},
	{name: "channel.flow off", send: send(method(1, 20, 20, byte(0)), qos)},
	{name: "channel.open with text", send: send(method(2, 20, 10, "out of band"), qos)},
	{name: "access.request", send: send(method(1, 30, 10, "/data", byte(0xff)), qos)},

	{name: "a header of another class", send: send(publishNowhere, header(1, 50, 0, 0))},
	{name: "a header of no class", send: send(publishNowhere, header(1, 0, 0, 0))},
	{name: "a header with weight", documented: true, send: send(publishNowhere, header(1, 60, 1, 0), qos)},
	{name: "a header for an impossible size", documented: true, send: send(publishNowhere, header(1, 60, 0, 1<<40))},
	{name: "a header for the largest size", documented: true, send: send(publishNowhere, header(1, 60, 0, 1<<64-1))},
	{name: "a header that is cut off in its size", documented: true, send: send(publishNowhere, frame(frameHeader, 1, 0, 60, 0, 0, 0))},
	{name: "a header without flags", documented: true, send: send(publishNowhere, frame(frameHeader, 1, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))},
	{name: "a header without a property that it announces", documented: true, send: send(publishNowhere, header(1, 60, 0, 0, 0x80, 0))},
	{name: "a header with more than it announces", documented: true, send: send(publishNowhere, header(1, 60, 0, 0, 0, 0, 1, 2), qos)},
	{name: "a header with flags that mean nothing", documented: true, send: send(publishNowhere, header(1, 60, 0, 0, 0, 2), qos)},
	{name: "a header with flags that go on", documented: true, send: send(publishNowhere, header(1, 60, 0, 0, 0, 1, 0, 0), qos)},
	{name: "a header with a cluster id", send: send(publishNowhere, header(1, 60, 0, 0, 0, 4, 3, 'a', 'b', 'c'), qos)},
	{name: "a header with a table of an unknown type", documented: true, send: send(publishNowhere, header(1, 60, 0, 0, 0x20, 0, 0, 0, 0, 3, 1, 'k', 'Z'))},
	{name: "a header with a table that is cut off", documented: true, send: send(publishNowhere, header(1, 60, 0, 0, 0x20, 0, 0, 0, 0, 9, 1, 'k'))},
	{name: "an empty header frame", documented: true, send: send(publishNowhere, frame(frameHeader, 1))},

	{name: "no header but a method", send: send(publishNowhere, qos)},
	{name: "no header but a body", send: send(publishNowhere, body(1, "b"))},
	{name: "a header without a method", send: send(header(1, 60, 0, 1))},
	{name: "a body without a method", send: send(body(1, "b"))},
	{name: "a header in place of a body", send: send(publishNowhere, header(1, 60, 0, 1), header(1, 60, 0, 1))},
	{name: "a method in place of a body", send: send(publishNowhere, header(1, 60, 0, 1), qos)},
	{name: "a body beyond its size", documented: true, send: send(publishNowhere, header(1, 60, 0, 1), body(1, "two"))},
	{name: "a body beyond its size in the second frame", documented: true, send: send(publishNowhere, header(1, 60, 0, 3), body(1, "two"[:2]), body(1, "more"))},
	{name: "a body for a size of 0", send: send(publishNowhere, header(1, 60, 0, 0), body(1, "b"))},
	{name: "an empty body for a size of 0", send: send(publishNowhere, header(1, 60, 0, 0), body(1, ""))},
	{name: "empty body frames", send: send(publishNowhere, header(1, 60, 0, 2), body(1, ""), body(1, "a"), body(1, ""), body(1, "b"), qos)},
	{name: "contents of two channels between each other", send: send(method(2, 20, 10, ""), publishNowhere, method(2, 60, 40, uint16(0), "", "none", byte(0)),
		header(2, 60, 0, 1), header(1, 60, 0, 1), body(2, "b"), body(1, "b"), qos)},

	{name: "channel.close in the middle of a content", send: send(publishNowhere, header(1, 60, 0, 9), body(1, "half"), closeChannel)},
	{name: "channel.close before the header", send: send(publishNowhere, closeChannel)},
	{name: "channel.close in the middle of a content that goes on", send: send(publishNowhere, header(1, 60, 0, 8), body(1, "half"), closeChannel, body(1, "half"))},
	{name: "connection.close in the middle of a content", send: send(publishNowhere, header(1, 60, 0, 9), body(1, "half"), closeAll)},
	{name: "connection.close in the middle of a content that goes on", send: send(publishNowhere, header(1, 60, 0, 8), body(1, "half"), closeAll, body(1, "half"))},
	{name: "the channel is closed in the middle of a content", documented: true, send: send(getNothing, publishNowhere, header(1, 60, 0, 8), body(1, "half"), closeOk, body(1, "half"), openChannel)},
	{name: "methods and contents behind a refusal", send: send(getNothing, qos, publishNowhere, header(1, 60, 0, 4), body(1, "half"), qos, closeOk, openChannel, qos)},
	{name: "channel.open behind a refusal", documented: true, send: send(getNothing, openChannel, qos)},
	{name: "channel.close behind a refusal", send: send(getNothing, closeChannel, closeOk, openChannel)},
	{name: "channel.close and no close-ok behind a refusal", documented: true, send: send(getNothing, closeChannel, openChannel)},
	{name: "wrong frames behind a refusal", documented: true, send: send(getNothing, body(1, "b"), header(1, 60, 0, 3), qos, closeOk, openChannel)},
	{name: "a method that cannot be read behind a refusal", documented: true, send: send(getNothing, shorter(qos, 2), closeOk, openChannel)},
	{name: "methods behind connection.close", send: send(closeAll, qos, openChannel, body(1, "b"))},

	{name: "more bytes behind basic.qos", documented: true, send: send(longer(qos, "more"), qos)},
	{name: "more bytes behind queue.declare", documented: true, send: send(longer(declare(nil), "more"), qos)},
	{name: "more bytes behind basic.publish", documented: true, send: send(longer(publishNowhere, "more"), header(1, 60, 0, 0), qos)},
	{name: "more bytes behind channel.open", documented: true, send: send(longer(method(2, 20, 10, ""), "more"), qos)},
	{name: "more bytes behind channel.close", documented: true, send: send(longer(closeChannel, "more"))},
	{name: "more bytes behind connection.open", documented: true, send: send(longer(method(0, 10, 40, "/", "", byte(0)), "more")), early: true},
	{name: "more bytes behind connection.close", documented: true, send: send(longer(closeAll, "more"))},
	{name: "basic.qos that is cut off", documented: true, send: send(shorter(qos, 2))},
	{name: "basic.publish that is cut off", documented: true, send: send(shorter(publishNowhere, 2))},
	{name: "connection.open that is cut off", documented: true, send: send(shorter(method(0, 10, 40, "/", "", byte(0)), 2)), early: true},
	{name: "a method without a number", documented: true, send: send(frame(frameMethod, 1, 0, 60))},
	{name: "an empty method frame", documented: true, send: send(frame(frameMethod, 1))},
	{name: "an unknown method", documented: true, send: send(method(1, 60, 99))},
	{name: "an unknown class", documented: true, send: send(method(1, 99, 10))},
	{name: "an unknown method on channel 0", documented: true, send: send(method(0, 10, 99))},
	{name: "basic.deliver from a client", send: send(method(1, 60, 60, "tag", uint64(1), byte(0), "", "key"), header(1, 60, 0, 0))},
	{name: "queue.declare-ok from a client", send: send(method(1, 50, 11, "q", uint32(0), uint32(0)))},
	{name: "basic.cancel-ok from a client", documented: true, send: send(method(1, 60, 31, "tag"), qos)},
	{name: "connection.start from a client", send: send(method(0, 10, 10, byte(0), byte(9), []byte{}, []byte("PLAIN"), []byte("en_US")))},
	{name: "an unknown frame type", send: send(frame(7, 1, 'w'))},
	{name: "frame type 0", send: send(frame(0, 0))},
	{name: "an unknown frame type on channel 0", send: send(frame(7, 0, 'w'))},

	{name: "a table with an unknown type", documented: true, send: send(declare([]byte("\x01kZ")))},
	{name: "a table that is cut off", documented: true, send: send(declare([]byte("\x09k")))},
	{name: "a table in which a string goes beyond it", documented: true, send: send(declare([]byte("\x01kS\x00\x00\x00\x09v")))},
	{name: "a table with a name twice", send: send(declare([]byte("\x01kt\x01\x01kt\x00")))},
	{name: "a table with an empty name", send: send(declare([]byte("\x00t\x01")))},
	{name: "a table with every harmless type", send: send(declare([]byte("\x01at\x01\x01bb\x01\x01cB\x01\x01ds\x00\x01\x01eu\x00\x01\x01fI\x00\x00\x00\x01\x01gi\x00\x00\x00\x01\x01hV")))},
	{name: "a name of 255 bytes", send: send(method(1, 50, 10, uint16(0), strings.Repeat("n", 255), byte(0b0101), []byte{}))},

	{name: "channel number at channel_max", send: send(method(100, 20, 10, ""), qos)},
	{name: "channel number above channel_max", send: send(method(101, 20, 10, ""), qos)},
	{name: "the largest channel number", send: send(method(65535, 20, 10, ""), qos)},
	{name: "one channel more than channel_max", tune: tuned{1, 131072, 0}, send: send(method(2, 20, 10, ""), qos)},
	{name: "tune-ok with more channels", tune: tuned{65535, 131072, 0}, send: send(qos)},
	{name: "tune-ok with more channels, before connection.open", documented: true, tune: tuned{3000, 131072, 0}, early: true},
	{name: "tune-ok with any number of channels", tune: tuned{0, 131072, 0}, send: send(qos)},
	{name: "tune-ok with larger frames", documented: true, tune: tuned{100, 131073, 0}, early: true},
	{name: "tune-ok with frames of any size", tune: tuned{100, 0, 0}, send: send(qos)},
	{name: "tune-ok with the smallest frames", documented: true, tune: tuned{100, 4096, 0}, send: send(qos)},
	{name: "tune-ok with frames that are too small", documented: true, tune: tuned{100, 4095, 0}, early: true},
	{name: "tune-ok with a longer heartbeat", tune: tuned{100, 131072, 65535}, send: send(qos)},
	{name: "a method before connection.open", documented: true, send: send(qos), early: true},
	{name: "channel.open before connection.open", documented: true, send: send(openChannel), early: true},
	{name: "connection.close before connection.open", documented: true, send: send(closeAll), early: true},
	{name: "a heartbeat before connection.open", send: send(frame(frameHeartbeat, 0), method(0, 10, 40, "/", "", byte(0))), early: true},
	{name: "connection.open of no vhost", send: send(method(0, 10, 40, "", "", byte(0))), early: true},
	{name: "connection.open in place of start-ok", documented: true, send: send(method(0, 10, 40, "/", "", byte(0))), early: true, startOk: true},
	{name: "connection.close in place of start-ok", documented: true, send: send(closeAll), early: true, startOk: true},
	{name: "a heartbeat in place of start-ok", send: send(frame(frameHeartbeat, 0)), early: true, startOk: true},
	{name: "a body in place of start-ok", documented: true, send: send(body(0, "b")), early: true, startOk: true},
	{name: "the protocol's header again", documented: true, send: send([]byte("AMQP\x00\x00\x09\x01")), early: true, startOk: true},
	{name: "the protocol's header in an open connection", send: send([]byte("AMQP\x00\x00\x09\x01"))},
}
