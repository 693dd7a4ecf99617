package scopes

import "strings"

// nameBytesMax is how long names and routing keys are at most (AMQP's short strings): a pattern with more than that matches none.
const nameBytesMax = 255

// pattern is what one part of a scope says: texts with anything between them.
type pattern struct {
	texts []text
	// fixed are the texts if none depends on the virtual host, else nil.
	fixed []string
}

// text is a part of a pattern without a wildcard: literals with the name of the virtual host between them.
type text []string

// in is the text in a virtual host.
func (t text) in(vhost string) string { return strings.Join(t, vhost) }

// parsePattern reads one part of a scope. claim gives the value of a variable.
func parsePattern(s string, claim func(name string) (string, bool)) (p pattern, ok bool) {
	var literal strings.Builder
	now, size, varies := text{}, 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '*':
			p.texts = append(p.texts, append(now, literal.String()))
			now = text{}
			literal.Reset()
		case '{':
			name, _, closed := strings.Cut(s[i+1:], "}")
			if !closed {
				return p, false
			}
			i += len(name) + 1
			if name == "vhost" {
				now, varies = append(now, literal.String()), true
				literal.Reset()
				continue
			}
			value, known := claim(name)
			if size += len(value); !known || size > nameBytesMax {
				return p, false
			}
			literal.WriteString(value)
		default:
			if c == '+' {
				c = ' '
			}
			if c == '%' {
				var hex bool
				if c, hex = unhex(s[i+1:]); !hex {
					return p, false
				}
				i += 2
			}
			if size++; size > nameBytesMax {
				return p, false
			}
			literal.WriteByte(c)
		}
	}
	p.texts = append(p.texts, append(now, literal.String()))
	if !varies {
		p.fixed = p.in("")
	}
	return p, true
}

// unhex reads the byte that two digits say.
func unhex(s string) (c byte, ok bool) {
	if len(s) < 2 {
		return 0, false
	}
	for _, d := range []byte(s[:2]) {
		switch {
		case '0' <= d && d <= '9':
			d -= '0'
		case 'a' <= d && d <= 'f':
			d -= 'a' - 10
		case 'A' <= d && d <= 'F':
			d -= 'A' - 10
		default:
			return 0, false
		}
		c = c<<4 | d
	}
	return c, true
}

// in are the texts in a virtual host.
func (p pattern) in(vhost string) []string {
	if p.fixed != nil {
		return p.fixed
	}
	texts := make([]string, len(p.texts))
	for i, t := range p.texts {
		texts[i] = t.in(vhost)
	}
	return texts
}

// matches tells whether a name is the texts with anything between them.
func matches(texts []string, name string) bool {
	last := len(texts) - 1
	if last == 0 {
		return name == texts[0]
	}
	name, begins := strings.CutPrefix(name, texts[0])
	name, ends := strings.CutSuffix(name, texts[last])
	if !begins || !ends {
		return false
	}
	for _, t := range texts[1:last] {
		// The first place is as good as any: what comes after it has the most room.
		_, rest, found := strings.Cut(name, t)
		if !found {
			return false
		}
		name = rest
	}
	return true
}
