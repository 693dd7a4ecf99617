package amqp

import (
	"testing"

	wire "github.com/warrenmq/warren/amqp"
)

func TestStart(t *testing.T) {
	r := startServer(t)
	m := r.connect(t).greet()
	if m.VersionMajor != 0 || m.VersionMinor != 9 || m.Mechanisms != "PLAIN AMQPLAIN" || m.Locales != "en_US" {
		t.Errorf("start: %+v", m)
	}
	v, _ := m.ServerProperties.Get("capabilities")
	caps, _ := v.(wire.Table)
	for _, name := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
		"consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
	} {
		if v, _ := caps.Get(name); v != true {
			t.Errorf("capability %s: %v", name, v)
		}
	}
	for _, name := range []string{"product", "version", "platform", "copyright", "information", "cluster_name"} {
		if v, _ := m.ServerProperties.Get(name); v == nil || v == "" {
			t.Errorf("property %s: %v", name, v)
		}
	}
}

func TestLoginRefused(t *testing.T) {
	r := startServer(t)
	wrong := &wire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00wrong"}
	t.Run("with capability", func(t *testing.T) {
		c := r.connect(t)
		c.greet()
		told := *wrong
		told.ClientProperties = allCapabilities()
		c.send(0, &told)
		m := want[*wire.ConnectionClose](c, 0)
		checkClose(t, rule{code: 403, text: "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."},
			m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
		c.send(0, &wire.ConnectionCloseOk{})
		c.closed()
	})
	t.Run("without", func(t *testing.T) {
		c := r.connect(t)
		c.greet()
		c.send(0, wrong)
		c.closed()
	})
	t.Run("unknown mechanism", func(t *testing.T) {
		c := r.connect(t)
		c.greet()
		c.send(0, &wire.ConnectionStartOk{Mechanism: "EXTERNAL"})
		m := want[*wire.ConnectionClose](c, 0)
		checkClose(t, rule{code: 503, text: "COMMAND_INVALID - unknown authentication mechanism 'EXTERNAL'", class: 10, method: 11},
			m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
	})
	t.Run("AMQPLAIN", func(t *testing.T) {
		c := r.connect(t)
		c.greet()
		c.send(0, &wire.ConnectionStartOk{Mechanism: "AMQPLAIN", Response: "\x05LOGINS\x00\x00\x00\x05guest"})
		want[*wire.ConnectionTune](c, 0)
	})
}

func TestTune(t *testing.T) {
	r := startServer(t)
	for _, tc := range []struct {
		tune wire.ConnectionTuneOk
		text string
	}{
		{wire.ConnectionTuneOk{ChannelMax: 2047, FrameMax: 8191}, "negotiated frame_max = 8191 is lower than the minimum allowed value (8192)"},
		{wire.ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131073}, "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)"},
		{wire.ConnectionTuneOk{ChannelMax: 2047}, "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"},
		{wire.ConnectionTuneOk{ChannelMax: 2048, FrameMax: 8192}, "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)"},
		{wire.ConnectionTuneOk{FrameMax: 8192}, "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"},
	} {
		c := r.connect(t)
		offer := c.login(nil)
		if offer.ChannelMax != 2047 || offer.FrameMax != 131072 || offer.Heartbeat != 60 {
			t.Errorf("tune: %+v", offer)
		}
		c.send(0, &tc.tune)
		m := want[*wire.ConnectionClose](c, 0)
		checkClose(t, rule{code: 530, text: "NOT_ALLOWED - " + tc.text, class: 10, method: 30}, m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
		c.send(0, &wire.ConnectionCloseOk{})
		c.closed()
	}
	c := r.connect(t)
	c.handshake(nil, wire.ConnectionTuneOk{ChannelMax: 1, FrameMax: 8192})
	c.channel(9)
	c.send(5, &wire.ChannelOpen{})
	m := want[*wire.ConnectionClose](c, 0)
	checkClose(t, rule{code: 530, text: "NOT_ALLOWED - number of channels opened (1) has reached the negotiated channel_max (1)"},
		m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
}

func TestOpenRefused(t *testing.T) {
	r := startServer(t)
	for _, tc := range []struct{ vhost, text string }{
		{"nope", "NOT_ALLOWED - vhost nope not found"},
		{"locked", "NOT_ALLOWED - access to vhost 'locked' refused for user 'guest'"},
		{"full", "NOT_ALLOWED - access to vhost 'full' refused for user 'guest': connection limit (3) is reached"},
	} {
		c := r.connect(t)
		c.login(nil)
		c.send(0, &wire.ConnectionTuneOk{ChannelMax: 1, FrameMax: 8192}, &wire.ConnectionOpen{VirtualHost: tc.vhost})
		m := want[*wire.ConnectionClose](c, 0)
		checkClose(t, rule{code: 530, text: tc.text, class: 10, method: 40}, m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
	}
}

// A channel beyond the user's limit ends the connection.
func TestChannelRefused(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	r.b.mu.Lock()
	r.b.channelsFull = true
	r.b.mu.Unlock()
	c.send(2, &wire.ChannelOpen{})
	m := want[*wire.ConnectionClose](c, 0)
	checkClose(t, rule{code: 530, text: "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of 7"},
		m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
	c.send(0, &wire.ConnectionCloseOk{})
	c.closed()
}

func TestHandshakeOutOfOrder(t *testing.T) {
	r := startServer(t)
	c := r.connect(t)
	c.greet()
	c.send(0, &wire.ConnectionOpen{VirtualHost: "/"})
	m := want[*wire.ConnectionClose](c, 0)
	checkClose(t, rule{code: 503, text: "COMMAND_INVALID - expected connection.start-ok, got connection.open", class: 10, method: 40},
		m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
	c = r.connect(t)
	c.greet()
	c.send(1, &wire.ChannelOpen{})
	if m := want[*wire.ConnectionClose](c, 0); m.ReplyCode != 504 {
		t.Errorf("%+v", m)
	}
	c = r.connect(t)
	c.greet()
	c.bytes(wire.AppendBody(nil, 0, []byte("x"), 8192))
	if m := want[*wire.ConnectionClose](c, 0); m.ReplyCode != 505 {
		t.Errorf("%+v", m)
	}
	c = r.connect(t)
	c.greet()
	c.send(0, &wire.ConnectionClose{ReplyCode: 200})
	want[*wire.ConnectionCloseOk](c, 0)
}
