package amqp

// A ProtocolHeader is the eight bytes with which a client opens a connection.
type ProtocolHeader [8]byte

// String returns the header in a form for logs.
func (h ProtocolHeader) String() string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 4*len(h))
	for _, b := range h {
		if b >= ' ' && b < 0x7f && b != '\\' {
			out = append(out, b)
		} else {
			out = append(out, '\\', 'x', digits[b>>4], digits[b&15])
		}
	}
	return string(out)
}

// Header091 returns the header of AMQP 0-9-1, the one this package speaks.
func Header091() ProtocolHeader { return ProtocolHeader{'A', 'M', 'Q', 'P', 0, 0, 9, 1} }

// Header09 returns the header of AMQP 0-9, which some clients send and then speak 0-9-1.
func Header09() ProtocolHeader { return ProtocolHeader{'A', 'M', 'Q', 'P', 1, 1, 0, 9} }

// Header10SASL returns the header with which AMQP 1.0 begins authentication.
func Header10SASL() ProtocolHeader { return ProtocolHeader{'A', 'M', 'Q', 'P', 3, 1, 0, 0} }

// Header10 returns the header of AMQP 1.0 without authentication.
func Header10() ProtocolHeader { return ProtocolHeader{'A', 'M', 'Q', 'P', 0, 1, 0, 0} }

// A HeaderKind classifies what a peer opened its connection with.
type HeaderKind uint8

// The kinds of protocol header.
const (
	HeaderUnknown   HeaderKind = iota // nothing known
	HeaderAMQP091                     // AMQP 0-9-1
	HeaderAMQP09                      // AMQP 0-9, to be treated as 0-9-1
	HeaderAMQP0                       // another AMQP 0-x of at least 9: tell it about 0-9-1
	HeaderAMQP10                      // AMQP 1.0 without SASL
	HeaderSASL10                      // AMQP 1.0 with SASL
	HeaderAMQPOther                   // "AMQP" with a version nobody knows
	HeaderHTTP                        // an HTTP request; the management port was meant
	HeaderTLS                         // a TLS hello on a port without TLS
)

// String returns a short name for logs.
func (k HeaderKind) String() string {
	switch k {
	case HeaderAMQP091:
		return "AMQP 0-9-1"
	case HeaderAMQP09:
		return "AMQP 0-9"
	case HeaderAMQP0:
		return "unsupported AMQP 0 version"
	case HeaderAMQP10:
		return "AMQP 1.0"
	case HeaderSASL10:
		return "AMQP 1.0 SASL"
	case HeaderAMQPOther:
		return "unknown AMQP version"
	case HeaderHTTP:
		return "HTTP request"
	case HeaderTLS:
		return "TLS hello"
	}
	return "unknown protocol"
}

// Accepted reports whether the peer will speak AMQP 0-9-1.
func (k HeaderKind) Accepted() bool { return k == HeaderAMQP091 || k == HeaderAMQP09 }

// Answer returns what to write to a peer whose header is not accepted, before
// closing. A server that speaks AMQP 1.0 too answers as RabbitMQ does: 0-9-1 to
// another AMQP 0, its SASL header to everything else. One that does not must not
// announce it and always answers 0-9-1.
func (k HeaderKind) Answer(speaks10 bool) ProtocolHeader {
	if speaks10 && k != HeaderAMQP0 {
		return Header10SASL()
	}
	return Header091()
}

// RecognizeHeader classifies the first bytes of a connection.
func RecognizeHeader(h ProtocolHeader) HeaderKind {
	switch h {
	case Header091():
		return HeaderAMQP091
	case Header09():
		return HeaderAMQP09
	case Header10():
		return HeaderAMQP10
	case Header10SASL():
		return HeaderSASL10
	}
	switch {
	case string(h[:4]) == "AMQP":
		if h[4] == 0 && h[5] == 0 && h[6] >= 9 {
			return HeaderAMQP0
		}
		return HeaderAMQPOther
	case h[0] == 0x16 && h[1] == 0x03:
		return HeaderTLS
	}
	for _, verb := range []string{"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH ", "CONNECT ", "PRI * HT"} {
		if string(h[:len(verb)]) == verb {
			return HeaderHTTP
		}
	}
	return HeaderUnknown
}
