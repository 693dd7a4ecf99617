package main

import "strings"

// writeConstants emits frame types, reply codes, class and method numbers.
func writeConstants(o *output, d *document) {
	o.p("// Frame types and framing bytes.\nconst (")
	for _, c := range d.Constants {
		if c.Name == "frame-error" || !strings.HasPrefix(c.Name, "frame-") {
			continue
		}
		typ := "byte"
		if c.Name == "frame-min-size" {
			typ = "uint32"
		}
		o.p("%s %s = %d", goName(c.Name), typ, c.Value)
	}
	o.p(")\n")

	o.p("// Reply codes of connection.close, channel.close and basic.return.\nconst (")
	for _, c := range replyCodes(d) {
		o.p("%s uint16 = %d", goName(c.Name), c.Value)
	}
	o.p(")\n")

	o.p("// ReplyName returns the name of a reply code as servers print it, such as NOT_FOUND, and \"\" for a code\n// that the protocol does not define.")
	o.p("func ReplyName(code uint16) string {\nswitch code {")
	for _, c := range replyCodes(d) {
		o.p("case %s:\nreturn %q", goName(c.Name), strings.ToUpper(strings.ReplaceAll(c.Name, "-", "_")))
	}
	o.p("}\nreturn \"\"\n}\n")

	o.p("// IsSoft reports whether a reply code closes only the channel. Any other code but [ReplySuccess] closes\n// the connection, codes that the protocol does not define included.")
	o.p("func IsSoft(code uint16) bool {\nswitch code {\ncase ")
	first := true
	for _, c := range d.Constants {
		if c.Class == "soft-error" {
			if !first {
				o.WriteString(", ")
			}
			first = false
			o.WriteString(goName(c.Name))
		}
	}
	o.p(":\nreturn true\n}\nreturn false\n}\n")

	o.p("// Class numbers.\nconst (")
	for _, c := range d.Classes {
		o.p("Class%s uint16 = %d", goName(c.Name), c.Index)
	}
	o.p(")\n")

	o.p("// Method numbers: the class in the upper half, the method in the lower.\nconst (")
	for _, c := range d.Classes {
		for _, m := range c.Methods {
			o.p("Method%s MethodID = %d<<16 | %d", goName(c.Name, m.Name), c.Index, m.Index)
		}
	}
	o.p(")")
}

func replyCodes(d *document) []constant {
	var codes []constant
	for _, c := range d.Constants {
		if c.Class != "" || c.Name == "reply-success" {
			codes = append(codes, c)
		}
	}
	return codes
}
