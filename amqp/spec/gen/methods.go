package main

import (
	"fmt"
	"strings"
)

// writeMethods emits one struct per method with its codec, the decode switch
// and the table of facts about methods.
func writeMethods(o *output, d *document) {
	o.p("// A Method is one AMQP method with its arguments. Only pointers to the generated structs implement it.")
	o.p("type Method interface {")
	o.p("// ID returns the class and method number.\nID() MethodID")
	o.p("// Name returns the name in the specification, such as \"queue.declare\".\nName() string")
	o.p("// AppendTo appends the payload of the method's frame, class and method number included. Short\n// strings beyond 255 bytes are cut at a rune boundary; a table value of a type outside the list\n// of [Table] panics.\nAppendTo(dst []byte) []byte")
	o.p("// AppendFrame appends the whole method frame. It does not make the method escape to the heap when\n// called on the concrete type.\nAppendFrame(dst []byte, channel uint16) []byte")
	o.p("// Decode fills the method from the payload of a frame that carries this method. Every field is\n// overwritten; strings equal to those already present are kept, so that reusing one struct for a\n// stream of similar methods does not allocate. Nothing decoded aliases payload. After an error the\n// contents are unspecified. The error is an [*Error].\nDecode(payload []byte) error")
	o.p("method()\n}\n")

	for _, c := range d.Classes {
		for _, m := range c.Methods {
			writeMethod(o, c, m)
		}
	}
	writeDecodeSwitch(o, d)
	writeFacts(o, d)
}

func writeMethod(o *output, c class, m method) {
	name := goName(c.Name, m.Name)
	o.p("// %s is %s.%s (%d.%d), %s.", name, c.Name, m.Name, c.Index, m.Index, describe(m))
	o.p("type %s struct {", name)
	for _, f := range m.Fields {
		if !f.Reserved {
			o.p("%s %s", goName(f.Rename), goTypes[f.Type])
		}
	}
	o.p("}\n")
	o.p("func (*%s) method() {}\n", name)
	o.p("// ID implements [Method].\nfunc (*%s) ID() MethodID { return Method%s }\n", name, name)
	o.p("// Name implements [Method].\nfunc (*%s) Name() string { return %q }\n", name, c.Name+"."+m.Name)

	o.p("// AppendTo implements [Method].\nfunc (m *%s) AppendTo(dst []byte) []byte {", name)
	lead := fmt.Sprintf("0, %d, 0, %d", c.Index, m.Index)
	writeAppend(o, m.Fields, lead)
	o.p("}\n")

	o.p("// AppendFrame implements [Method].\nfunc (m *%s) AppendFrame(dst []byte, channel uint16) []byte {", name)
	o.p("at := len(dst)\ndst = appendFrameStart(dst, FrameMethod, channel)\nreturn closeFrame(m.AppendTo(dst), at)\n}\n")

	o.p("// Decode implements [Method].\nfunc (m *%s) Decode(payload []byte) error {", name)
	o.p("c := cursor{buf: payload}\nif err := c.method(Method%s); err != nil {\nreturn err\n}", name)
	if len(m.Fields) > 0 {
		o.p("m.decode(&c)")
	}
	o.p("return c.finish(Method%s)\n}\n", name)

	if len(m.Fields) > 0 {
		o.p("func (m *%s) decode(c *cursor) {", name)
		writeDecode(o, m.Fields, m.received("server") && !m.Content)
		o.p("}\n")
	}
}

func describe(m method) string {
	var s string
	switch fromClient, fromServer := m.received("server"), m.received("client"); {
	case fromClient && fromServer:
		s = "sent by both sides"
	case fromClient:
		s = "sent by the client"
	default:
		s = "sent by the server"
	}
	if m.Content {
		s += ", followed by content"
	}
	return s
}

// writeAppend emits the encoder body. lead holds bytes to put in front; runs of
// constant bytes are merged into one append.
func writeAppend(o *output, fields []field, lead string) {
	flush := func() {
		if lead != "" {
			o.p("dst = append(dst, %s)", lead)
		}
		lead = ""
	}
	konst := func(bytes string) {
		if lead != "" {
			lead += ", "
		}
		lead += bytes
	}
	for i := 0; i < len(fields); i++ {
		f := fields[i]
		if f.Type == "bit" {
			run := bitRun(fields[i:])
			i += len(run) - 1
			if allReserved(run) {
				konst("0")
				continue
			}
			flush()
			o.p("dst = append(dst, %s)", packBits(run))
			continue
		}
		if f.Reserved {
			konst(map[string]string{"octet": "0", "short": "0, 0", "shortstr": "0", "longstr": "0, 0, 0, 0"}[f.Type])
			continue
		}
		flush()
		v := "m." + goName(f.Rename)
		switch f.Type {
		case "octet":
			o.p("dst = append(dst, %s)", v)
		case "short":
			o.p("dst = binary.BigEndian.AppendUint16(dst, %s)", v)
		case "long":
			o.p("dst = binary.BigEndian.AppendUint32(dst, %s)", v)
		case "longlong":
			o.p("dst = binary.BigEndian.AppendUint64(dst, %s)", v)
		case "shortstr":
			o.p("dst = appendShortstr(dst, %s)", v)
		case "longstr":
			o.p("dst = appendLongstr(dst, %s)", v)
		case "table":
			o.p("dst = AppendTable(dst, %s)", v)
		}
	}
	flush()
	o.p("return dst")
}

// writeDecode writes how fields are read. Short strings of what clients send are UTF-8 if text says so: RabbitMQ
// wants that of all methods but basic.publish.
func writeDecode(o *output, fields []field, text bool) {
	bits := "" // how the next octet of bits is assigned
	for i := 0; i < len(fields); i++ {
		f := fields[i]
		if f.Type == "bit" {
			run := bitRun(fields[i:])
			i += len(run) - 1
			if allReserved(run) {
				o.p("c.u8()")
				continue
			}
			if bits == "" {
				bits = ":"
			} else {
				bits = " "
			}
			o.p("bits %s= c.u8()", bits)
			for bit, b := range run {
				if !b.Reserved {
					o.p("m.%s = bits&%d != 0", goName(b.Rename), 1<<bit)
				}
			}
			continue
		}
		v := "m." + goName(f.Rename)
		switch read := map[string]string{"octet": "u8", "short": "u16", "long": "u32", "longlong": "u64", "table": "table"}[f.Type]; {
		case read != "" && f.Reserved:
			o.p("c.%s()", read)
		case read != "":
			o.p("%s = c.%s()", v, read)
		case f.Reserved:
			o.p("c.%sBytes()", f.Type)
		case f.Type == "shortstr" && text:
			o.p("c.shorttext(&%s)", v)
		default:
			o.p("c.%s(&%s)", f.Type, v)
		}
	}
}

func bitRun(fields []field) []field {
	n := 0
	for n < len(fields) && fields[n].Type == "bit" && n < 8 {
		n++
	}
	return fields[:n]
}

func allReserved(fields []field) bool {
	for _, f := range fields {
		if !f.Reserved {
			return false
		}
	}
	return true
}

func packBits(run []field) string {
	var s string
	for bit, f := range run {
		if f.Reserved {
			continue
		}
		if s != "" {
			s += "|"
		}
		s += fmt.Sprintf("bit(m.%s, %d)", goName(f.Rename), bit)
	}
	return s
}

func writeDecodeSwitch(o *output, d *document) {
	o.p("// Decode reads the payload of a method frame. The result is a pointer to a fresh struct; its strings and\n// tables are copies, so that payload may be reused at once. The error is an [*Error]: [CommandInvalid]\n// with class and method for an unknown number, [SyntaxError] for arguments that are malformed, cut short\n// or followed by other bytes.")
	o.p("func Decode(payload []byte) (Method, error) {")
	o.p("c := cursor{buf: payload}")
	o.p("id := MethodID(c.u32())")
	o.p("if c.fault != \"\" {\nreturn nil, c.finish(0)\n}")
	o.p("var out Method")
	o.p("switch id {")
	for _, c := range d.Classes {
		for _, m := range c.Methods {
			name := goName(c.Name, m.Name)
			o.p("case Method%s:", name)
			if len(m.Fields) == 0 {
				o.p("out = new(%s)", name)
				continue
			}
			o.p("m := new(%s)\nm.decode(&c)\nout = m", name)
		}
	}
	o.p("default:\nreturn nil, unknownMethod(id)\n}")
	o.p("if err := c.finish(id); err != nil {\nreturn nil, err\n}")
	o.p("return out, nil\n}\n")
}

func writeFacts(o *output, d *document) {
	o.p("// Info returns what the specification says about a method; ok is false for a number it does not define.")
	o.p("func (id MethodID) Info() (info MethodInfo, ok bool) {")
	o.p("switch id {")
	for _, c := range d.Classes {
		for _, m := range c.Methods {
			s := fmt.Sprintf("ID: id, Name: %q", c.Name+"."+m.Name)
			var facts []string
			for _, fact := range []struct {
				name string
				set  bool
			}{
				{"Synchronous", m.Synchronous},
				{"Content", m.Content},
				{"FromClient", m.received("server")},
				{"FromServer", m.received("client")},
				{"OnConnection", c.Handler == "connection"},
			} {
				if fact.set {
					facts = append(facts, ", "+fact.name+": true")
				}
			}
			s += strings.Join(facts, "")
			if len(m.Responses) > 0 {
				var replies []string
				for _, r := range m.Responses {
					replies = append(replies, "Method"+goName(c.Name, r.Name))
				}
				s += ", replies: [2]MethodID{" + strings.Join(replies, ", ") + "}"
			}
			o.p("case Method%s:\nreturn MethodInfo{%s}, true", goName(c.Name, m.Name), s)
		}
	}
	o.p("}\nreturn MethodInfo{}, false\n}\n")

	o.p("// Methods returns the number of every method the codec knows, in ascending order.")
	o.p("func Methods() []MethodID {\nreturn []MethodID{")
	for _, c := range d.Classes {
		for _, m := range c.Methods {
			o.p("Method%s,", goName(c.Name, m.Name))
		}
	}
	o.p("}\n}\n")
}
